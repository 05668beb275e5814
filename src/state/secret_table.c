/* SPDX-License-Identifier: Apache-2.0 */

/* See secret_table.h. */

#include "state/secret_table.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"
#include "network/entry.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_LEN = 64, HEADER_MAX = 63, FORMAT_MAX = 256, PORT_HTTPS = 443 };

/* Headers that say how a request is read. hermes-inject writes them itself. */
static const char *const reserved[] = {"Host", "Connection", "Content-Length",
    "Transfer-Encoding", "TE", "Trailer", "Upgrade", "Expect", "Accept-Encoding", "Range",
    "If-Range", "Keep-Alive", NULL};

static const char *const word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_.";

static bool is_word(const char *text, size_t max)
{
    size_t len = strspn(text, word);
    return len > 0 && len <= max && text[len] == '\0';
}

static const char *check_header(const char *value)
{
    if (!is_word(value, HEADER_MAX))
        return "a header has at most 63 letters, digits, - and _";
    for (const char *const *name = reserved; *name; name++) {
        if (strcasecmp(*name, value) == 0)
            return "this header says how a request is read; it cannot carry a secret";
    }
    return NULL;
}

static const char *check_format(const char *value)
{
    const char *at = strstr(value, "{}");
    if (!at || strstr(at + 1, "{}") || strlen(value) > FORMAT_MAX)
        return "a format has one {} where the value stands, and at most 256 characters";
    for (const char *p = value; *p; p++) {
        if (*p < 0x20 || *p > 0x7e)
            return "a format has printable ASCII characters only";
    }
    return NULL;
}

static const char *check_path(const char *value)
{
    return value[0] == '/' ? NULL : "the path of a file begins with /";
}

static const char *check_text(const char *value)
{
    return value[0] ? NULL : "there is nothing behind the =";
}

/* The lines of a section. */
static const struct {
    const char *key;
    size_t offset;
    const char *(*check)(const char *value);
} rows[] = {
    {"file", offsetof(struct secret_def, file), check_path},
    {"host", offsetof(struct secret_def, host), check_text},
    {"header", offsetof(struct secret_def, header), check_header},
    {"format", offsetof(struct secret_def, format), check_format},
    {"keys", offsetof(struct secret_def, keys), check_text},
    {"trust", offsetof(struct secret_def, trust), check_path},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static char **member(struct secret_def *def, size_t row)
{
    return (char **)((char *)def + rows[row].offset);
}

/* The index of a secret; the count when there is none. */
static size_t find(const struct secret_table *table, const char *name)
{
    size_t i = 0;
    while (i < table->count && !str_eq(table->items[i].name, name))
        i++;
    return i;
}

static struct secret_def *find_or_add(struct secret_table *table, const char *name)
{
    size_t at = find(table, name);
    if (at < table->count)
        return &table->items[at];
    if (table->count == NETWORK_MAX_SECRETS)
        return NULL;
    struct secret_def *def = &table->items[table->count++];
    def->name = xstrdup(name);
    for (size_t i = 0; i < ROWS; i++)
        *member(def, i) = xstrdup(str_eq(rows[i].key, "format") ? "{}" : "");
    return def;
}

const char *secret_table_set(
    struct secret_table *table, const char *name, const char *key, const char *value)
{
    if (!is_word(name, NAME_MAX_LEN))
        return "the name of a secret has at most 64 letters, digits, -, _ and .";
    struct secret_def *def = find_or_add(table, name);
    if (!def)
        return "there are more than 32 secrets";
    size_t row = 0;
    while (row < ROWS && !str_eq(rows[row].key, key))
        row++;
    if (row == ROWS)
        return "a secret has file, host, header, format, keys and trust";
    const char *why = rows[row].check(value);
    if (why)
        return why;
    free(*member(def, row));
    *member(def, row) = xstrdup(value);
    return NULL;
}

static const char *complete(struct secret_def *def)
{
    struct err err = {0};
    if (!def->host[0] || !def->header[0] || !def->keys[0])
        return "a secret needs host, header and keys (the names of keys, or * for every "
               "caller)";
    if (network_entry_parse(&def->entry, def->host, &err) < 0)
        return "host must be NAME or NAME:PORT";
    struct network_entry *entry = &def->entry;
    if (entry->is_web) { /* without a port */
        entry->is_web = 0;
        entry->first_port = entry->last_port = PORT_HTTPS;
    }
    if (entry->target != TARGET_NAME || entry->protocol != NETWORK_TCP ||
        entry->first_port != entry->last_port)
        return "host must be one name, not a range or *.name, with one port";
    return NULL;
}

void secret_table_check(struct secret_table *table, struct strv *problems)
{
    for (size_t i = 0; i < table->count; i++) {
        struct secret_def *def = &table->items[i];
        const char *why = complete(def);
        if (why)
            strv_add_owned(problems, xasprintf("[secret %s]: %s", def->name, why));
    }
}

int secret_table_write(const struct secret_table *table, struct buf *to)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < table->count; i++) {
        const struct secret_def *def = &table->items[i];
        r = buf_printf(to, "[secret %s]\nhost = %s\nheader = %s\nformat = %s\nkeys = %s\n",
            def->name, def->host, def->header, def->format, def->keys);
    }
    return r;
}

void secret_table_done(struct secret_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->items[i].name);
        for (size_t k = 0; k < ROWS; k++)
            free(*member(&table->items[i], k));
    }
    *table = (struct secret_table){0};
}

void secret_def_keys(
    const struct secret_def *def, void (*visit)(void *context, const char *key), void *context)
{
    cleanup_free char *list = xstrdup(def->keys);
    for (char *at = list, *item; (item = strsep(&at, ", "));) {
        if (item[0])
            visit(context, item);
    }
}

int secret_table_find(const struct secret_table *table, const char *name, const char *key)
{
    size_t i = find(table, name);
    return i < table->count && str_list_covers(table->items[i].keys, key) ? (int)i : -1;
}
