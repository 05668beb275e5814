/* SPDX-License-Identifier: Apache-2.0 */

/* See shell_cache.h. A tree is kept as text: jansson's form takes several times as much. */

#include "approval/shell_cache.h"

#include "base/alloc.h"

#include <nettle/sha2.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct row {
    char *tree; /* NULL: the row is free */
    size_t len;
    int owner;
    uint64_t used; /* number of the last use */
    uint8_t digest[SHA256_DIGEST_SIZE];
};

struct shell_cache {
    pthread_mutex_t lock;
    uint64_t uses;
    size_t bytes;
    struct row rows[SHELL_CACHE_ROWS];
};

struct shell_cache *shell_cache_new(void)
{
    struct shell_cache *cache = xcalloc(1, sizeof(*cache));
    (void)pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void shell_cache_free(struct shell_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < SHELL_CACHE_ROWS; i++)
        free(cache->rows[i].tree);
    (void)pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static void digest_of(const char *text, size_t len, uint8_t ret[SHA256_DIGEST_SIZE])
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    sha256_update(&hash, len, (const uint8_t *)text);
    sha256_digest(&hash, SHA256_DIGEST_SIZE, ret);
}

/* --- with the lock held */

static struct row *find(struct shell_cache *cache, int owner, const uint8_t *digest)
{
    for (size_t i = 0; i < SHELL_CACHE_ROWS; i++) {
        struct row *row = &cache->rows[i];
        if (row->tree && row->owner == owner &&
            memcmp(row->digest, digest, sizeof(row->digest)) == 0) {
            row->used = ++cache->uses;
            return row;
        }
    }
    return NULL;
}

static struct row *find_free(struct shell_cache *cache)
{
    for (size_t i = 0; i < SHELL_CACHE_ROWS; i++) {
        if (!cache->rows[i].tree)
            return &cache->rows[i];
    }
    return NULL;
}

static size_t held_by(const struct shell_cache *cache, int owner)
{
    size_t sum = 0;
    for (size_t i = 0; i < SHELL_CACHE_ROWS; i++) {
        if (cache->rows[i].owner == owner)
            sum += cache->rows[i].len;
    }
    return sum;
}

/* Forgets the row of the owner with the most that was not used for the longest time. */
static void drop_one(struct shell_cache *cache)
{
    struct row *worst = NULL;
    size_t most = 0;
    for (size_t i = 0; i < SHELL_CACHE_ROWS; i++) {
        struct row *row = &cache->rows[i];
        size_t held = row->tree ? held_by(cache, row->owner) : 0;
        if (held > most || (worst && held == most && row->used < worst->used)) {
            most = held;
            worst = row;
        }
    }
    if (!worst)
        return;
    cache->bytes -= worst->len;
    free(worst->tree);
    *worst = (struct row){0};
}

static void add(struct shell_cache *cache, const struct row *row)
{
    while (cache->bytes + row->len > SHELL_CACHE_BYTES || !find_free(cache))
        drop_one(cache);
    struct row *to = find_free(cache);
    *to = *row;
    to->used = ++cache->uses;
    cache->bytes += to->len;
}

/* --- */

json_t *shell_cache_get(struct shell_cache *cache, int owner, const char *text, size_t len)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    digest_of(text, len, digest);
    (void)pthread_mutex_lock(&cache->lock);
    const struct row *row = find(cache, owner, digest);
    json_t *tree = row ? json_loadb(row->tree, row->len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    (void)pthread_mutex_unlock(&cache->lock);
    return tree;
}

void shell_cache_put(
    struct shell_cache *cache, int owner, const char *text, size_t len, const json_t *tree)
{
    struct row row = {.owner = owner, .len = json_dumpb(tree, NULL, 0, JSON_COMPACT)};
    if (!row.len || row.len > SHELL_CACHE_TREE_MAX)
        return;
    row.tree = xmalloc(row.len);
    (void)json_dumpb(tree, row.tree, row.len, JSON_COMPACT);
    digest_of(text, len, row.digest);
    (void)pthread_mutex_lock(&cache->lock);
    if (find(cache, owner, row.digest))
        free(row.tree);
    else
        add(cache, &row);
    (void)pthread_mutex_unlock(&cache->lock);
}

size_t shell_cache_bytes(struct shell_cache *cache)
{
    (void)pthread_mutex_lock(&cache->lock);
    size_t bytes = cache->bytes;
    (void)pthread_mutex_unlock(&cache->lock);
    return bytes;
}
