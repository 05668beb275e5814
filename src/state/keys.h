/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* API keys. Only their SHA-256 is kept; a key from a request is hashed and compared with every
 * stored hash in constant time. Read-only once filled, so any thread may look things up. */

#include "base/buf.h"
#include "run/run.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_HASH_SIZE = 32, KEY_NAME_MAX = 64, KEY_MAX_COUNT = 4096 };

/* An operator sees what belongs to all keys. */
enum key_role { KEY_USER, KEY_OPERATOR };

struct key {
    char name[KEY_NAME_MAX]; /* for logs, metrics and ownership */
    uint8_t hash[KEY_HASH_SIZE];
    uint32_t concurrency; /* runs at one time; 0: no limit of its own */
    uint32_t rate_per_s;  /* runs started; 0: no limit */
    uint32_t rate_per_m;
    uint64_t cpu_s_per_hour; /* CPU seconds used; 0: no limit */
    enum key_role role;
};

struct keys {
    struct key *items;
    size_t count;
};

void keys_done(struct keys *keys);

/* Adds a key, unless one with the same secret exists. Problems (a name used twice, characters
 * that are not allowed in a header) are added to `problems` as text that begins with
 * `where`. */
void keys_add(struct keys *keys, const char *where, const char *name, const char *secret,
    struct strv *problems);

/* Adds the keys of a list "k1, k2", named PREFIX-1, PREFIX-2; empty items are skipped. */
void keys_add_list(struct keys *keys, const char *where, const char *prefix, const char *list,
    struct strv *problems);

/* Adds the keys of a keys file: `[NAME]` with `key = SECRET` or `sha256 = HEX`, and optionally
 * `concurrency`, `rate_per_s`, `rate_per_m`, `cpu_s_per_hour`, `role` (`user` or `operator`).
 */
void keys_add_file(struct keys *keys, const char *path, struct strv *problems);
void keys_add_text(
    struct keys *keys, const char *where, const char *text, size_t len, struct strv *problems);

/* Writes the keys in the form of a keys file, with hashes only. */
int keys_write(const struct keys *keys, struct buf *to);

const char *key_role_name(enum key_role role);

/* The index of the key with this secret, or -1. Takes the same time for every position. */
int keys_find(const struct keys *keys, const char *secret, size_t len);
