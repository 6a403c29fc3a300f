/* rng.h: random numbers that belong to the datum.
 *
 * Philox4x32-10 (Salmon et al., 2011) turns a counter and a key into random bits without any state.
 * So a draw depends on seed, epoch, image and purpose, never on who draws first: it is the same
 * with one thread or many, on CPU or GPU, and after a resume.  nvcc compiles this file for both,
 * so it uses only integer operations and exact conversions. */
#ifndef CONR_RNG_H
#define CONR_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define BOTH_SIDES __host__ __device__
#else
#define BOTH_SIDES
#endif

/* The purpose of a stream.  Streams of different purposes are independent. */
enum {
    RNG_VIEW_A = 0, /* the two views of an image */
    RNG_VIEW_B = 1,
    RNG_ORDER,   /* the order of images in an epoch */
    RNG_WEIGHTS, /* initialization; the "image" is the number of the tensor */
    RNG_KMEANS,
    RNG_QUEUE, /* the first keys of MoCo */
    RNG_TEST,
    RNG_GROUPS,  /* of batch statistics, drawn in every step */
    RNG_BALANCE, /* the images of an epoch that is balanced by cluster size */
    RNG_NOISE,   /* on the projector's output; the "epoch" is the step, the "image" the row */
    RNG_GRAPH,   /* the first guess of eigenvectors; the "image" is the row */
    RNG_NEAR,    /* the neighbor a row of refined features is pulled to; the "epoch" is the step */
    RNG_SAMPLE,  /* rows that k-means of a large set starts from; the "epoch" is the run */
    RNG_JUMP     /* where centers of it may jump to; the "epoch" is the step, the "image" the row */
};

typedef struct rng {
    uint32_t key[2], counter[4]; /* counter[0] counts the blocks of one stream */
    uint32_t block[4];           /* four words at a time, the next one first */
    int used;                    /* words of the block that are used up */
} rng;

/* out = Philox4x32-10(counter, key) */
static inline BOTH_SIDES void philox(const uint32_t key[2], const uint32_t counter[4],
                                     uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static inline BOTH_SIDES rng rng_at(uint64_t seed, uint32_t epoch, uint32_t image,
                                    uint32_t purpose) {
    rng r;
    r.key[0] = (uint32_t)seed, r.key[1] = (uint32_t)(seed >> 32);
    r.counter[0] = 0, r.counter[1] = image, r.counter[2] = epoch, r.counter[3] = purpose;
    r.used = 4;
    return r;
}

static inline BOTH_SIDES uint32_t rng_bits(rng *r) {
    if (r->used == 4) {
        philox(r->key, r->counter, r->block);
        r->counter[0]++;
        r->used = 0;
    }
    /* from the front, not by index, so that a GPU can keep the block in registers */
    uint32_t bits = r->block[0];
    r->block[0] = r->block[1], r->block[1] = r->block[2], r->block[2] = r->block[3];
    r->used++;
    return bits;
}

/* Uniform in [0,1), a multiple of 2^-24: exact in float. */
static inline BOTH_SIDES float rng_float(rng *r) {
    return (float)(rng_bits(r) >> 8) * (1.0f / 16777216.0f);
}

/* Uniform in {0, ..., n-1}, n > 0, without bias (Lemire 2019). */
static inline BOTH_SIDES uint32_t rng_below(rng *r, uint32_t n) {
    uint64_t product = (uint64_t)rng_bits(r) * n;
    if ((uint32_t)product < n) {
        uint32_t reject = (0u - n) % n;
        while ((uint32_t)product < reject) product = (uint64_t)rng_bits(r) * n;
    }
    return (uint32_t)(product >> 32);
}

/* Standard normal, by the polar method; host only (rng.c), with the same bits on every machine. */
double rng_normal(rng *r);

/* The order of an epoch: a keyed bijection of {0, ..., n-1}, computed on demand, not stored. */
typedef struct rng_order {
    uint32_t key[8];
    uint32_t n;
    int half; /* bits of one half of the Feistel network */
} rng_order;

static inline BOTH_SIDES rng_order rng_order_make(uint64_t seed, uint32_t epoch, uint32_t n) {
    rng_order o;
    rng r = rng_at(seed, epoch, 0, RNG_ORDER);
    for (int i = 0; i < 8; i++) o.key[i] = rng_bits(&r);
    o.n = n;
    o.half = 1;
    while (o.half < 16 && (n - 1) >> (2 * o.half)) o.half++;
    return o;
}

/* The i-th image of the epoch, i < n.  Walks the cycle until it lands below n: fewer than four
 * steps on average, since the network's domain is less than four times n. */
static inline BOTH_SIDES uint32_t rng_order_at(const rng_order *o, uint32_t i) {
    uint32_t mask = (uint32_t)((1ull << o->half) - 1);
    do {
        uint32_t left = i >> o->half, right = i & mask;
        for (int round = 0; round < 8; round++) {
            uint32_t h = right * 0x9E3779B9u ^ o->key[round];
            h = (h ^ h >> 16) * 0x85EBCA6Bu;
            h = (h ^ h >> 13) * 0xC2B2AE35u;
            h ^= h >> 16;
            uint32_t next = left ^ (h & mask);
            left = right;
            right = next;
        }
        i = left << o->half | right;
    } while (i >= o->n);
    return i;
}

#endif
