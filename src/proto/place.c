/* SPDX-License-Identifier: Apache-2.0 */

/* See place.h. */

#include "proto/place.h"

#include "base/utf8.h"

#include <string.h>

#define BIT(limit) (1u << (limit))

enum {
    LIMITS_OF_DOCKER = BIT(PLACE_CPUS) | BIT(PLACE_MEMORY) | BIT(PLACE_PROCESSES),
    EVERY_LIMIT = BIT(PLACE_LIMITS) - 1,
};

static const struct {
    const char *name;
    const char *isolation;
    const char *open; /* the isolation of a row with is_open */
    bool is_box;
    uint32_t enforces, may_enforce;
} kinds[PLACE_KINDS] = {
    [PLACE_NATIVE] = {"native", "box", "box", true, EVERY_LIMIT, EVERY_LIMIT},
    [PLACE_LOCAL] = {"local", "none", "none", false, 0, 0},
    [PLACE_SSH] = {"ssh", "none", "none", false, 0, 0},
    [PLACE_PLUGIN] = {"plugin", "declared", "none", true, 0, EVERY_LIMIT},
    [PLACE_APPTAINER] = {"apptainer", "container", "partial", true, 0, LIMITS_OF_DOCKER},
    [PLACE_DOCKER] = {"docker", "container", "partial", true, LIMITS_OF_DOCKER, EVERY_LIMIT},
};

static const struct {
    const char *name;
    uint32_t fallback; /* the default, for places that can enforce the limit */
} limits[PLACE_LIMITS] = {
    [PLACE_CPUS] = {"cpus", 1000},
    [PLACE_MEMORY] = {"memory_mb", 5120},
    [PLACE_PROCESSES] = {"processes", 256},
    [PLACE_DISK] = {"disk_mb", 51200},
};

static const char *const errors[PLACE_ERRORS] = {
    [PLACE_FINE] = "fine",
    [PLACE_AUTH] = "auth",
    [PLACE_NOT_FOUND] = "not_found",
    [PLACE_REFUSED] = "refused",
    [PLACE_LIMIT] = "limit",
    [PLACE_UNREACHABLE] = "unreachable",
    [PLACE_LOST] = "lost",
};

const char *place_kind_name(uint32_t kind)
{
    return kind < PLACE_KINDS ? kinds[kind].name : NULL;
}

const char *place_error_name(uint32_t error)
{
    return error < PLACE_ERRORS ? errors[error] : "lost";
}

const char *place_limit_name(uint32_t limit)
{
    return limit < PLACE_LIMITS ? limits[limit].name : NULL;
}

/* Bytes of an escape sequence of a terminal at the beginning of the text; 0: there is none. */
static size_t escape_len(const char *s, size_t len)
{
    size_t at = 2;
    if (len < 2 || s[0] != '\033' || s[1] != '[')
        return 0;
    while (at < len && s[at] >= ' ' && s[at] < '@')
        at++;
    return at < len ? at + 1 : at;
}

/* Control characters, line ends of Unicode, and marks of direction. */
static bool is_unfit(uint32_t code)
{
    static const uint32_t ranges[][2] = {{0, 0x1f}, {0x7f, 0x9f}, {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {UTF8_INVALID, UTF8_INVALID}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    return false;
}

size_t place_words(char *to, size_t size, const char *from, size_t len)
{
    size_t used = 0;
    for (size_t at = 0, n; at < len; at += n) {
        uint32_t code;
        n = escape_len(from + at, len - at);
        if (n)
            continue;
        n = utf8_next(from + at, len - at, &code);
        bool is_fit = !is_unfit(code);
        if (used + (is_fit ? n : 1) >= size)
            break;
        if (is_fit)
            memmove(to + used, from + at, n);
        else
            to[used] = code == UTF8_INVALID ? '?' : ' ';
        used += is_fit ? n : 1;
    }
    to[used] = '\0';
    return used;
}

void place_quote(char *to, size_t size, const char *from)
{
    size_t len = place_words(to + 1, size - 2, from, strlen(from));
    to[0] = to[len + 1] = '"';
    to[len + 2] = '\0';
    for (char *at = to + 1; at < to + 1 + len; at++)
        *at = *at == '"' ? '\'' : *at;
}

bool place_has_probe(uint32_t kind)
{
    return kind == PLACE_DOCKER;
}

uint32_t place_enforces(uint32_t kind)
{
    return kind < PLACE_KINDS ? kinds[kind].enforces : 0;
}

uint32_t place_may_enforce(uint32_t kind)
{
    return kind < PLACE_KINDS ? kinds[kind].may_enforce : 0;
}

uint32_t place_default_limit(uint32_t kind, uint32_t limit)
{
    bool has_one = limit < PLACE_LIMITS && (place_may_enforce(kind) & BIT(limit));
    return has_one ? limits[limit].fallback : 0;
}

const char *place_network(const struct place_row *row)
{
    bool is_cut = strcmp(row->network, "none") == 0;
    return is_cut ? "none" : "full";
}

bool place_is_box(const struct place_row *row)
{
    return !row || (row->kind < PLACE_KINDS && kinds[row->kind].is_box && !row->is_open);
}

const char *place_scope(const struct place_row *row)
{
    if (row->kind == PLACE_LOCAL || row->kind == PLACE_SSH)
        return "host";
    return row->kind != PLACE_NATIVE && row->keeps ? "key" : "session";
}

uint64_t place_open_ms(const struct place_row *row)
{
    return (uint64_t)row->open_s * 1000;
}

const char *place_isolation(const struct place_row *row)
{
    if (row->kind >= PLACE_KINDS)
        return "none";
    return row->is_open ? kinds[row->kind].open : kinds[row->kind].isolation;
}

bool place_table_may_gain(const struct place_table *table)
{
    bool may = false;
    for (uint32_t i = 0; i < table->count; i++)
        may = may || (table->rows[i].kind == PLACE_LOCAL && table->rows[i].may_gain);
    return may;
}
