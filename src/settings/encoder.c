/* encoder.c: the settings of a training that goes on from a ResNet in a file. */
#include "base/status.h"
#include "base/tensors.h"
#include "conr.h"
#include "encoder/resnet.h"

#include <stdio.h>

int conr_settings_encoder(conr_settings *s, const char *path) {
    int rc = 0;
    tensors f = {0};
    resnet_about about;
    char width[16];
    TRY(tensors_open(path, &f));
    TRY(resnet_recognize(&f, &about));
    if (rc == 0)
        TRY(fail(CONR_EFORMAT,
                 "%s: holds no ResNet, and only those can be trained further; cluster the features "
                 "of the network as it is",
                 path));
    snprintf(width, sizeof width, "%d", about.width);
    TRY(conr_settings_set(s, "encoder", encoder_name(about.encoder)));
    TRY(conr_settings_set(s, "width", width));
    if (about.encoder != ENCODER_SMALL) TRY(conr_settings_set(s, "stem", stem_name(about.stem)));
done:
    tensors_close(&f);
    return rc < 0 ? rc : 0;
}
