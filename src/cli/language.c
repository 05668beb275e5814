/* SPDX-License-Identifier: Apache-2.0 */

/* See language.h. */

#include "cli/language.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/nearest.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>

bool language_has_extension(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot && dot != file && dot[-1] != '/' && !strchr(dot, '/');
}

int language_unknown(const char *file, struct err *err)
{
    return err_field(err, "--language",
        "cannot tell the language of %s from its name; use -l LANGUAGE (see `hermes runtimes`)",
        str_eq(file, "-") ? "the program on standard input" : file);
}

/* Replaces the error of an unknown name by one with the nearest known name. */
static int suggest(const struct lang_dirs *dirs, const char *name, struct err *err)
{
    CLEANUP(runtime_registry_done) struct runtime_registry all = {0};
    struct nearest near = {.word = name};
    int r = runtime_load(&all, dirs, NULL, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < all.count; i++) {
        nearest_try(&near, all.items[i].name);
        for (size_t k = 0; k < all.items[i].aliases.count; k++)
            nearest_try(&near, all.items[i].aliases.items[k]);
    }
    if (near.name)
        return err_field(err, "--language", "unknown language \"%.64s\"; did you mean \"%s\"?",
            name, near.name);
    return err_field(err, "--language",
        "unknown language \"%.64s\"; `hermes runtimes` lists all languages", name);
}

int language_load(struct runtime_registry *ret, const struct lang_dirs *dirs, const char *name,
    const char *file, struct err *err)
{
    int r = runtime_load(ret, dirs, name ? name : file, err);
    if (r == 0 || err->code != ERR_INVALID || !str_eq(err->field, "language"))
        return r;
    return name ? suggest(dirs, name, err) : language_unknown(file, err);
}

char *language_guess(const char *data, size_t len)
{
    if (len >= 4 && memcmp(data, "\177ELF", 4) == 0)
        return xstrdup("native");
    if (len < 3 || data[0] != '#' || data[1] != '!')
        return NULL;
    size_t line = 2;
    while (line < len && data[line] != '\n')
        line++;
    cleanup_free char *first = xstrndup(data + 2, line - 2);
    char *save = NULL;
    char *word = strtok_r(first, " \t\r", &save);
    char *last = word;
    while (word && str_has_suffix(word, "/env") && (word = strtok_r(NULL, " \t\r", &save)))
        last = word;
    if (!last)
        return NULL;
    char *slash = strrchr(last, '/');
    return xstrdup(slash ? slash + 1 : last);
}
