/* families.c: which family a file belongs to. */
#include "pretrained/family.h"

#include "base/status.h"

static const family *const families[] = {&family_vit, &family_resnet};

int family_find(const tensors *f, const encoder_settings *set, const family **out,
                encoder_about *about) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        int rc = families[i]->recognize(f, set, about);
        *out = families[i];
        if (rc) return rc < 0 ? rc : 0;
    }
    *out = NULL;
    return fail(CONR_EFORMAT,
                "%s: is no network that is known (its first tensor is '%.100s'); give a vision "
                "transformer (timm, DINO, DINOv2, CLIP, SigLIP) or a ResNet",
                f->path, f->n ? f->tensor[0].name : "");
}
