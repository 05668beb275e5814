/* SPDX-License-Identifier: Apache-2.0 */

/* See keys.h. The monitor reads secrets and passes only hashes to the server, so an attacker
 * who takes over the server learns no keys. */

#include "state/keys.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "state/ini.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Bytes of a keys file, and the length of a secret. */
enum { FILE_MAX = 1 << 20, SECRET_MIN = 1, SECRET_MAX = 512 };
static const size_t HEX_SIZE = (size_t)KEY_HASH_SIZE * 2;

void keys_done(struct keys *keys)
{
    free(keys->items);
    *keys = (struct keys){0};
}

static void hash_secret(const char *secret, size_t len, uint8_t out[KEY_HASH_SIZE])
{
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    sha256_update(&ctx, len, (const uint8_t *)secret);
    sha256_digest(&ctx, KEY_HASH_SIZE, out);
}

static const char *name_problem(const struct keys *keys, const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len >= KEY_NAME_MAX)
        return "the name of a key has 1 to 63 bytes";
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-") !=
        len)
        return "the name of a key has letters, digits and _ . @ - only";
    for (size_t i = 0; i < keys->count; i++) {
        if (str_eq(keys->items[i].name, name))
            return "there are two keys of this name";
    }
    return keys->count == KEY_MAX_COUNT ? "there are too many keys" : NULL;
}

static const char *secret_problem(const char *secret)
{
    size_t len = strlen(secret);
    if (len < SECRET_MIN || len > SECRET_MAX)
        return "a key has 1 to 512 characters; `openssl rand -hex 24` makes a good one";
    for (size_t i = 0; i < len; i++) {
        if (secret[i] <= 0x20 || secret[i] >= 0x7f)
            return "a key is printable ASCII without spaces, since it travels in a header";
    }
    return NULL;
}

static void complain(
    struct strv *problems, const char *where, const char *name, const char *why)
{
    strv_add_owned(problems, xasprintf("%s: key `%s`: %s", where, name, why));
}

static bool has_hash(const struct keys *keys, const uint8_t *hash)
{
    for (size_t i = 0; i < keys->count; i++) {
        if (memcmp(keys->items[i].hash, hash, KEY_HASH_SIZE) == 0)
            return true;
    }
    return false;
}

/* Adds a key whose name and hash were checked. Refuses a secret that another key has: the owner
 * of a run would then depend on the order of the keys. */
static void add_checked(
    struct keys *keys, const char *where, const struct key *key, struct strv *problems)
{
    if (has_hash(keys, key->hash)) {
        complain(problems, where, key->name, "another key has the same secret");
        return;
    }
    keys->items = xreallocarray(keys->items, keys->count + 1, sizeof(*keys->items));
    keys->items[keys->count++] = *key;
}

void keys_add(struct keys *keys, const char *where, const char *name, const char *secret,
    struct strv *problems)
{
    const char *why = name_problem(keys, name);
    struct key key = {0};
    if (!why)
        why = secret_problem(secret);
    if (why) {
        complain(problems, where, name, why);
        return;
    }
    memcpy(key.name, name, strlen(name) + 1);
    hash_secret(secret, strlen(secret), key.hash);
    /* API_TOKEN and AUTH_TOKEN are often set to the same value: one key is enough. */
    if (!has_hash(keys, key.hash))
        add_checked(keys, where, &key, problems);
}

void keys_add_list(struct keys *keys, const char *where, const char *prefix, const char *list,
    struct strv *problems)
{
    unsigned number = 0;
    while (*list) {
        size_t len = strcspn(list, ",");
        size_t from = strspn(list, " \t");
        size_t to = len;
        while (to > from && (list[to - 1] == ' ' || list[to - 1] == '\t'))
            to--;
        if (to > from) {
            cleanup_free char *secret = xstrndup(list + from, to - from);
            cleanup_free char *name = xasprintf("%s-%u", prefix, ++number);
            keys_add(keys, where, name, secret, problems);
        }
        list += len + (list[len] == ',');
    }
}

/* The section of a keys file that is being read. */
struct section {
    struct keys *keys;
    const char *where;
    struct strv *problems;
    struct key key; /* name is "" before the first section */
    bool has_secret;
};

static void finish_section(struct section *s)
{
    if (s->key.name[0] && !s->has_secret)
        complain(s->problems, s->where, s->key.name, "there is neither `key` nor `sha256`");
    else if (s->key.name[0])
        add_checked(s->keys, s->where, &s->key, s->problems);
    s->key = (struct key){0};
    s->has_secret = false;
}

static int parse_hash(const char *text, uint8_t out[KEY_HASH_SIZE])
{
    if (strlen(text) != HEX_SIZE || strspn(text, "0123456789abcdefABCDEF") != HEX_SIZE)
        return -EINVAL;
    for (size_t i = 0; i < KEY_HASH_SIZE; i++) {
        char digits[3] = {text[i * 2], text[i * 2 + 1], '\0'};
        out[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return 0;
}

static const char *const role_names[] = {[KEY_USER] = "user", [KEY_OPERATOR] = "operator"};

const char *key_role_name(enum key_role role)
{
    return role_names[role];
}

static const char *take_role(struct key *key, const char *name)
{
    for (size_t i = 0; i < sizeof(role_names) / sizeof(role_names[0]); i++) {
        if (str_eq(role_names[i], name)) {
            key->role = (enum key_role)i;
            return NULL;
        }
    }
    return "the role of a key is `user` or `operator`";
}

static const char *take_entry(struct section *s, const char *key, const char *value)
{
    uint64_t number;
    if (str_eq(key, "key")) {
        const char *why = secret_problem(value);
        hash_secret(value, strlen(value), s->key.hash);
        s->has_secret = true;
        return why;
    }
    if (str_eq(key, "sha256")) {
        s->has_secret = true;
        return parse_hash(value, s->key.hash) < 0 ? "sha256 has 64 hexadecimal digits" : NULL;
    }
    if (str_eq(key, "role"))
        return take_role(&s->key, value);
    if (str_parse_u64(value, &number) < 0 || number > UINT32_MAX)
        return "this is not a number";
    if (str_eq(key, "concurrency"))
        s->key.concurrency = (uint32_t)number;
    else if (str_eq(key, "rate_per_s"))
        s->key.rate_per_s = (uint32_t)number;
    else if (str_eq(key, "rate_per_m"))
        s->key.rate_per_m = (uint32_t)number;
    else if (str_eq(key, "cpu_s_per_hour"))
        s->key.cpu_s_per_hour = number;
    else
        return "unknown setting; there are key, sha256, concurrency, rate_per_s, rate_per_m, "
               "cpu_s_per_hour, role";
    return NULL;
}

static void on_entry(
    void *context, unsigned line, const char *section, const char *key, const char *value)
{
    struct section *s = context;
    const char *why = NULL;
    if (!str_eq(section, s->key.name)) {
        finish_section(s);
        why = name_problem(s->keys, section);
        if (!why)
            memcpy(s->key.name, section, strlen(section) + 1);
    }
    if (!why)
        why = take_entry(s, key, value);
    if (why)
        strv_add_owned(s->problems, xasprintf("%s: line %u: %s: %s", s->where, line, key, why));
}

static void on_problem(void *context, unsigned line, const char *why)
{
    struct section *s = context;
    strv_add_owned(s->problems, xasprintf("%s: line %u: %s", s->where, line, why));
}

void keys_add_text(
    struct keys *keys, const char *where, const char *text, size_t len, struct strv *problems)
{
    struct section s = {.keys = keys, .where = where, .problems = problems};
    ini_read(text, len, INI_CONFIG, on_entry, on_problem, &s);
    finish_section(&s);
}

void keys_add_file(struct keys *keys, const char *path, struct strv *problems)
{
    cleanup_buf struct buf text;
    struct err err = {0};
    struct stat st;
    buf_init(&text, FILE_MAX);
    if (fs_read_trusted(path, &text, &err) < 0) {
        strv_add_owned(problems, xasprintf("keys_file %s", err.message));
        return;
    }
    if (stat(path, &st) == 0 && (st.st_mode & 0077))
        strv_add_owned(problems,
            xasprintf("keys_file %s: others may read it; run chmod 600 %s", path, path));
    keys_add_text(keys, path, text.data ? text.data : "", text.len, problems);
}

int keys_write(const struct keys *keys, struct buf *to)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < keys->count; i++) {
        const struct key *key = &keys->items[i];
        char hex[KEY_HASH_SIZE * 2 + 1];
        str_hex(key->hash, KEY_HASH_SIZE, hex);
        r = buf_printf(to,
            "[%s]\nsha256 = %s\nconcurrency = %u\nrate_per_s = %u\nrate_per_m = %u\n"
            "cpu_s_per_hour = %llu\nrole = %s\n",
            key->name, hex, key->concurrency, key->rate_per_s, key->rate_per_m,
            (unsigned long long)key->cpu_s_per_hour, key_role_name(key->role));
    }
    return r;
}

int keys_find(const struct keys *keys, const char *secret, size_t len)
{
    uint8_t hash[KEY_HASH_SIZE];
    int found = -1;
    if (len > SECRET_MAX)
        return -1;
    hash_secret(secret, len, hash);
    for (size_t i = 0; i < keys->count; i++) {
        if (memeql_sec(hash, keys->items[i].hash, KEY_HASH_SIZE))
            found = (int)i;
    }
    return found;
}
