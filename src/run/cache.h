/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What compilers made, kept by content: $HERMES_STATE_DIR/cache/XX/KEY, where KEY is a SHA-256
 * over everything the result depends on. Only complete successes are kept; a failure may be the
 * doing of a limit or of the host, and is cheap to have again. Entries carry an HMAC under a
 * key that only this user can read, so a file that was cut short, changed or moved is never
 * used. Boxes do not see any of it. */

#include "base/err.h"
#include "lang/rootfs.h"
#include "run/cache_entry.h"
#include "run/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct cache_settings {
    uint64_t max_bytes; /* of all entries together; 0: no cache */
    bool shared;        /* all scopes are one */
};

/* HERMES_CACHE_MB (1024; 0 turns the cache off) and HERMES_CACHE_SHARED (0). */
int cache_settings_read(struct cache_settings *ret, struct err *err);

/* All that a compile stage's result depends on. */
struct cache_question {
    const char *scope; /* who may share the answer: the API key's name */
    const char *image;
    const struct runtime *runtime;
    const struct run_stage *stage;
    const struct run_files *files;   /* of the request */
    const struct root_entries *root; /* of the compile box */
};
void cache_key_make(const struct cache_question *question, struct cache_key *ret);

struct cache;

/* Opens or makes the cache below the state directory. Any number of threads may use it, and any
 * number of processes the same directory. */
int cache_open(struct cache **ret, const struct cache_settings *settings, struct err *err);
void cache_close(struct cache *cache); /* accepts NULL */

/* Returns 0 with the entry, which is the most recently used now, or -ENOENT. The purse (or
 * NULL) counts it, and what a box gets of it; it is the run's own, nothing is given back. */
int cache_get(struct cache *cache, const struct cache_key *key, struct buf_purse *purse,
    struct cache_entry *ret);

/* Keeps an entry; once all together are too large, the least recently used ones go. What cannot
 * be kept (no space, no memory, too large) is not: that is no failure of the run. */
void cache_put(struct cache *cache, const struct cache_key *key, struct buf_purse *purse,
    const struct cache_entry *entry);
