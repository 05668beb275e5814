/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Trees of shell texts that were parsed before. Parsing takes a box (session/host_parse.c); the
 * tree depends on the text alone. Only the reading of a text is kept, never a decision about
 * it.
 *
 * A tree is found by its owner and the SHA-256 of the text. Owners do not share trees: the time
 * that a parse takes would tell one key what another one has run, and a text that takes over
 * the parser reaches only its own owner. When the cache is full, the owner that holds the most
 * loses the tree that it has not used for the longest time, so many texts of one key do not
 * displace the few of another. So other keys can learn how much a
 * key does, which any wait shows as well.
 *
 * The cache is small and counts itself: at most SHELL_CACHE_BYTES. Any thread may call any
 * function. */

#include <jansson.h>
#include <stddef.h>

enum {
    SHELL_CACHE_ROWS = 256,
    SHELL_CACHE_TREE_MAX = 64 << 10, /* bytes of one tree: about 80 lines of text */
    SHELL_CACHE_BYTES = 4 << 20,     /* of all trees */
};

struct shell_cache;

struct shell_cache *shell_cache_new(void);
void shell_cache_free(struct shell_cache *cache);

/* The caller owns the tree. NULL when there is none. owner: a key, or -1. */
json_t *shell_cache_get(struct shell_cache *cache, int owner, const char *text, size_t len);

/* Keeps a copy of the tree, unless it is too large. */
void shell_cache_put(
    struct shell_cache *cache, int owner, const char *text, size_t len, const json_t *tree);

/* Bytes of all trees. */
size_t shell_cache_bytes(struct shell_cache *cache);
