/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* SipHash-2-4 with a result of 128 bits (Aumasson and Bernstein), fed byte by byte. The state
 * may be copied to continue in two ways. */

#include <stdint.h>

struct siphash_key {
    uint64_t k0, k1;
};

struct siphash {
    uint64_t v0, v1, v2, v3;
    uint64_t word; /* the bytes of the last, incomplete block */
    uint64_t len;
};

static inline void siphash_init(struct siphash *s, const struct siphash_key *key)
{
    *s = (struct siphash){.v0 = key->k0 ^ 0x736f6d6570736575u,
        .v1 = key->k1 ^ 0x646f72616e646f6du ^ 0xee,
        .v2 = key->k0 ^ 0x6c7967656e657261u,
        .v3 = key->k1 ^ 0x7465646279746573u};
}

static inline uint64_t siphash_rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void siphash_rounds(struct siphash *s, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        s->v0 += s->v1;
        s->v1 = siphash_rotate(s->v1, 13) ^ s->v0;
        s->v0 = siphash_rotate(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = siphash_rotate(s->v1, 17) ^ s->v2;
        s->v2 = siphash_rotate(s->v2, 32);
    }
}

static inline void siphash_block(struct siphash *s)
{
    s->v3 ^= s->word;
    siphash_rounds(s, 2);
    s->v0 ^= s->word;
    s->word = 0;
}

static inline void siphash_add(struct siphash *s, unsigned char byte)
{
    s->word |= (uint64_t)byte << (s->len & 7) * 8;
    if ((++s->len & 7) == 0)
        siphash_block(s);
}

/* Takes a copy, so the caller can continue with its state. */
static inline void siphash_end(struct siphash s, uint64_t ret[2])
{
    s.word |= s.len << 56;
    siphash_block(&s);
    s.v2 ^= 0xee;
    siphash_rounds(&s, 4);
    ret[0] = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    siphash_rounds(&s, 4);
    ret[1] = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
