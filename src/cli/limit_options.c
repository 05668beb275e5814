/* SPDX-License-Identifier: Apache-2.0 */

/* See limit_options.h. */

#include "cli/limit_options.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_FIRST = 2048, MAX_LIMITS = 32, NAME_MAX_LEN = 32, TEXT_MAX_LEN = 160 };

/* How a value is written, by the unit at the end of the limit's name. */
static const struct unit {
    const char *suffix;
    const char *value;   /* in --help */
    const char *example; /* in messages */
    const char *kind;
    uint64_t bytes; /* of a size; 0: not a size */
    int (*parse)(const char *text, uint64_t *ret);
} units[] = {
    {"_ms", "DURATION", "2s or 500ms", "duration", 0, str_parse_duration_ms},
    {"_mb", "SIZE", "256m", "size", 1 << 20, str_parse_size},
    {"_kb", "SIZE", "256k", "size", 1 << 10, str_parse_size},
    {"", "N", "4", "number", 0, str_parse_u64},
};

static struct option_row rows[MAX_LIMITS + 1];
static char names[MAX_LIMITS][NAME_MAX_LEN];
static char texts[MAX_LIMITS][TEXT_MAX_LEN];

static const struct unit *unit_of(const struct limit_info *info)
{
    const struct unit *unit = units;
    while (!str_has_suffix(info->name, unit->suffix))
        unit++;
    return unit;
}

/* A value as a user would write it: 4m, 2g, 500ms, 10s, 0.5. */
static void write_value(const struct limit_info *info, uint64_t value, char *out, size_t size)
{
    const struct unit *unit = unit_of(info);
    if (unit->bytes) {
        static const char letters[] = "kmgt";
        const char *letter = unit->bytes == 1 << 10 ? letters : letters + 1;
        for (; value && value % 1024 == 0 && letter[1]; letter++)
            value /= 1024;
        (void)snprintf(out, size, "%" PRIu64 "%c", value, *letter);
    } else if (unit->parse == str_parse_duration_ms) {
        bool whole = value >= 1000 && value % 1000 == 0;
        (void)snprintf(
            out, size, "%" PRIu64 "%s", whole ? value / 1000 : value, whole ? "s" : "ms");
    } else {
        (void)snprintf(out, size, "%g", (double)value / info->scale);
    }
}

static void make_row(size_t i)
{
    const struct limit_info *info = &limit_table[i];
    const struct unit *unit = unit_of(info);
    const char *in_unit = strstr(info->text, ", in ");
    char dflt[32], least[32], most[32];
    size_t len = strlen(info->name) - strlen(unit->suffix);
    if (str_eq(info->name, "wall_ms"))
        (void)snprintf(names[i], sizeof(names[i]), "time");
    else if (str_eq(info->name, "network_mb")) /* --network is the policy */
        (void)snprintf(names[i], sizeof(names[i]), "network-bytes");
    else
        (void)snprintf(names[i], sizeof(names[i]), "%.*s", (int)len, info->name);
    for (char *p = names[i]; *p; p++)
        *p = *p == '_' ? '-' : *p;
    write_value(info, info->fallback, dflt, sizeof(dflt));
    write_value(info, info->min, least, sizeof(least));
    write_value(info, info->max, most, sizeof(most));
    (void)snprintf(texts[i], sizeof(texts[i]), "limit: %.*s (%s to %s; default %s)",
        in_unit ? (int)(in_unit - info->text) : (int)strlen(info->text), info->text, least,
        most, dflt);
    rows[i] = (struct option_row){names[i], KEY_FIRST + (int)i, unit->value, texts[i]};
}

const struct option_row *limit_options(void)
{
    for (size_t i = 0; i < limit_count && i < MAX_LIMITS && !rows[i].name; i++)
        make_row(i);
    return rows;
}

/* Parses the text in the unit of the limit; a size is rounded up to it. */
static int parse(const struct limit_info *info, const char *text, uint64_t *ret)
{
    const struct unit *unit = unit_of(info);
    /* A fraction: "0.5" as seconds is 500 thousandths. */
    bool is_fraction = info->scale != 1;
    int r = is_fraction ? str_parse_duration_ms(text, ret) : unit->parse(text, ret);
    if (is_fraction && text[strcspn(text, "hms")])
        return -1;
    if (r == 0 && unit->bytes)
        *ret = *ret / unit->bytes + (*ret % unit->bytes != 0);
    return r < 0 || *ret == 0 ? -1 : 0;
}

/* A size without a unit is in bytes, which is rarely the intention. */
static _Noreturn void refuse_bytes(
    const char *command, const struct limit_info *info, const char *option, const char *text)
{
    struct err err = {0};
    char least[32], field[64];
    write_value(info, info->min, least, sizeof(least));
    (void)snprintf(field, sizeof(field), "--%s", option);
    (void)err_field(&err, field, "--%s %s means %s bytes; the least is %s. Did you mean %s%c?",
        option, text, text, least, text, unit_of(info)->bytes == 1 << 10 ? 'k' : 'm');
    options_refuse(command, &err);
}

bool limit_options_take(
    const char *command, int key, const char *text, struct run_limits *limits)
{
    size_t i = (size_t)(key - KEY_FIRST);
    if (key < KEY_FIRST || i >= limit_count)
        return false;
    const struct limit_info *info = &limit_table[i];
    const struct unit *unit = unit_of(info);
    const char *option = limit_options()[i].name;
    uint64_t *to = limit_member(limits, info);
    uint64_t bytes;
    char why[96], least[32], most[32];
    if (parse(info, text, to) < 0) {
        (void)snprintf(
            why, sizeof(why), "not a %s above zero such as %s", unit->kind, unit->example);
        options_wrong(command, option, text, why);
    }
    if (unit->bytes && str_parse_u64(text, &bytes) == 0 && bytes < info->min * unit->bytes)
        refuse_bytes(command, info, option, text);
    if (*to < info->min || *to > info->max) {
        write_value(info, info->min, least, sizeof(least));
        write_value(info, info->max, most, sizeof(most));
        (void)snprintf(why, sizeof(why), "it must be from %s to %s", least, most);
        options_wrong(command, option, text, why);
    }
    return true;
}

json_t *limit_options_json(const struct run_limits *limits)
{
    struct run_limits copy = *limits;
    json_t *json = NULL;
    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t value = *limit_member(&copy, info);
        if (value && !json)
            json = json_object();
        if (value)
            (void)json_object_set_new(json, info->name,
                info->scale == 1 ? json_integer((json_int_t)value)
                                 : json_real((double)value / info->scale));
    }
    return json;
}
