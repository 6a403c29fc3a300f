/* checksum_test.c: known values of XXH64, from its reference implementation. */
#include "base/checksum.h"
#include "base/test_help.h"

#include <string.h>

static void known_values(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t seed, sum;
    } known[] = {
        {"", 0, 0xef46db3751d8e999},
        {"a", 0, 0xd24ec4f1a98c6e5b},
        {"abc", 0, 0x44bc2cf5ad770999},
        {"Nobody inspects the spammish repetition", 0, 0xfbcea83c8a378bf1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(checksum(known[i].text, strlen(known[i].text), known[i].seed),
                         known[i].sum);
    /* the test vectors of xxHash itself: bytes from a multiplicative generator */
    unsigned char bytes[222];
    uint64_t generator = 2654435761u;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(generator >> 56);
        generator *= 11400714785074694797u;
    }
    static const struct {
        size_t n;
        uint64_t seed, sum;
    } vectors[] = {
        {0, 2654435761u, 0xac75fda2929b17ef}, {1, 0, 0xe934a84adb052768},
        {1, 2654435761u, 0x5014607643a9b4c3}, {4, 0, 0x9136a0dca57457ee},
        {14, 0, 0x8282dcc4994e35c8},          {14, 2654435761u, 0xc3bd6bf63deb6df0},
        {222, 0, 0xb641ae8cb691c174},         {222, 2654435761u, 0x20cb8ab7ae10c14a},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        assert_int_equal(checksum(bytes, vectors[i].n, vectors[i].seed), vectors[i].sum);
}

/* Every single bit counts, whatever the length. */
static void single_bits(void **state) {
    (void)state;
    unsigned char bytes[80] = {0};
    for (size_t n = 1; n <= sizeof bytes; n++) {
        uint64_t whole = checksum(bytes, n, 7);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_int_not_equal(checksum(bytes, n, 7), whole);
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        if (n > 1) assert_int_not_equal(checksum(bytes, n - 1, 7), whole);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_values),
                                       cmocka_unit_test(single_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
