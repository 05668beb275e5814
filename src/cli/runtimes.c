/* SPDX-License-Identifier: Apache-2.0 */

/* hermes runtimes: lists the languages, their versions on this host and, for missing ones, the
 * package to install. */

#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lang/runtime.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option_row options[] = {
    {"json", 'j', NULL, "print the list, or the error, as JSON"},
    {0},
};

const struct option_table runtimes_options = {
    .summary = "list the languages, their versions and what is missing",
    .command = "hermes runtimes",
    .rows = options,
    .before = "Lists the languages, their versions and what is missing.",
    .after =
        "A language is a directory with a runtime.json. The variable RUNTIME_DIR names "
        "directories with more languages.\n\nExit status: 0; 2 wrong usage; 125 when Hermes "
        "itself failed.",
};

static void take_option(void *json, int key, char *arg)
{
    *(bool *)json = true; /* there is no other option */
}

static char *join(const struct strv *v)
{
    return str_join((const char *const *)v->items, v->count, ", ");
}

static void print_table(const struct runtime_registry *reg)
{
    size_t missing = 0;

    (void)printf("%-11s %-10s %-26s %s\n", "NAME", "VERSION", "ALIASES", "FILES");
    for (size_t i = 0; i < reg->count; i++) {
        const struct runtime *rt = &reg->items[i];
        if (rt->is_internal)
            continue;
        cleanup_free char *aliases = join(&rt->aliases);
        cleanup_free char *extensions = join(&rt->extensions);
        const char *version = rt->version != NULL ? rt->version : "";

        (void)printf("%-11s %-10s %-26s %s\n", rt->name, rt->available ? version : "missing",
            aliases, extensions);
        missing += !rt->available;
    }
    if (missing == 0)
        return;
    (void)printf("\n");
    for (size_t i = 0; i < reg->count; i++) {
        if (!reg->items[i].available)
            (void)printf("%s\n", reg->items[i].missing);
    }
    (void)printf("`make runtimes` in the source tree installs them all.\n");
}

static json_t *list_json(const struct strv *v)
{
    json_t *list = json_array();

    for (size_t i = 0; i < v->count; i++)
        (void)json_array_append_new(list, json_string(v->items[i]));
    return list;
}

static void print_json(const struct runtime_registry *reg)
{
    json_t *list = json_array();

    for (size_t i = 0; i < reg->count; i++) {
        const struct runtime *rt = &reg->items[i];

        if (rt->is_internal)
            continue;
        (void)json_array_append_new(list,
            json_pack("{s:s, s:o, s:o, s:s, s:s?, s:s?, s:b, s:b, s:s, s:s?}", "name", rt->name,
                "aliases", list_json(&rt->aliases), "extensions", list_json(&rt->extensions),
                "main_file", rt->main_file, "version", rt->version, "compiler", rt->compiler,
                "compiled", rt->compiled, "available", rt->available, "package", rt->package,
                "missing", rt->missing));
    }
    output_json(json_pack("{s:o}", "runtimes", list), 0);
}

int cmd_runtimes(int argc, char **argv)
{
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct err err = {0};
    bool json = false;

    options_parse(&runtimes_options, argc, argv, take_option, &json);
    const struct lang_dirs dirs = cli_dirs();
    if (runtime_load(&reg, &dirs, NULL, &err) < 0)
        return cli_fail("runtimes", &err);
    runtime_find_versions(&reg, dirs.state);
    if (json)
        print_json(&reg);
    else
        print_table(&reg);
    return 0;
}
