/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps the results of compilers: STATE_DIR/cache/XX/KEY, where KEY is a SHA-256 of
 * everything the result depends on. Only complete successes are kept: a failure may be due to a
 * limit or to the host, and is cheap to repeat. Entries carry an HMAC under a key that only
 * this user can read, so a file that was cut short, changed or moved is never used. Boxes do
 * not see the cache. */

#include "base/err.h"
#include "lang/rootfs.h"
#include "run/cache/entry.h"
#include "run/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct cache_settings {
    uint64_t max_bytes; /* size limit of all entries together; 0 turns the cache off */
    bool shared;        /* every key may use the entries of every other key */
};

/* Default and largest value of the setting cache_mb. */
#define CACHE_MB_DEFAULT "1024"
enum { CACHE_MB_MAX = 1 << 24 };

/* From the values of HERMES_CACHE_MB and HERMES_CACHE_SHARED, for commands that run without a
 * server; NULL or "" stands for the default. A server has settings with the same values. */
int cache_settings_parse(
    const char *mb, const char *shared, struct cache_settings *ret, struct err *err);

/* Everything that the result of a compile stage depends on. Its hash is the entry's KEY. */
struct cache_question {
    const char *scope; /* the user of the entry: an API key, a user, or "" for all */
    const struct run_image *image; /* or NULL */
    const struct runtime *runtime;
    const struct run_stage *stage;
    const struct run_files *files;   /* of the request */
    const struct root_entries *root; /* of the compile box */
};
void cache_key_make(const struct cache_question *question, struct cache_key *ret);

struct cache;

/* Opens or makes the cache in the state directory (the `named` of state_dir_open()). Any number
 * of threads may use the cache, and any number of processes the same directory. */
int cache_open(struct cache **ret, const struct cache_settings *settings, const char *state_dir,
    struct err *err);
void cache_close(struct cache *cache); /* accepts NULL */

/* Returns 0 with the entry and marks it as the most recently used, or returns -ENOENT. The
 * purse (or NULL) is charged twice the size: for the entry and for the copy in the box's
 * package. Nothing is given back, so the purse must belong to the run. */
int cache_get(struct cache *cache, const struct cache_key *key, struct buf_purse *purse,
    struct cache_entry *ret);

/* Keeps an entry. When all entries together are too large, removes the least recently used
 * ones. A failure to keep the entry (no space, no memory, too large) is not a failure of the
 * run. */
void cache_put(struct cache *cache, const struct cache_key *key, struct buf_purse *purse,
    const struct cache_entry *entry);
