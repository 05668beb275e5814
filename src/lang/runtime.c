/* SPDX-License-Identifier: Apache-2.0 */

/* The registry: finds the directories that hold runtimes and loads all runtimes or just one.
 * `hermes run` needs one language and must start at once, so other files are not parsed: a file
 * is parsed only if its text contains the wanted word in quotes. That costs a few microseconds
 * per file and needs no index that could fall out of step. */

#include "lang/runtime.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "lang/runtime_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a runtime.json, bytes of an sdk file, characters of a runtime's name. */
enum { RUNTIME_FILE_MAX = 64 * 1024, SDK_FILE_MAX = 64 * 1024, NAME_LEN_MAX = 64 };

/* The runtime to load; all NULL: every runtime. */
struct wanted {
    const char *word;      /* a name or alias */
    const char *extension; /* ".py", or NULL */
    const char *home;      /* of struct lang_dirs */
};

void runtime_registry_done(struct runtime_registry *reg)
{
    for (size_t i = 0; i < reg->count; i++)
        runtime_done(&reg->items[i]);
    free(reg->items);
    *reg = (struct runtime_registry){0};
}

const struct runtime *runtime_find_internal(
    const struct runtime_registry *reg, const char *name)
{
    for (size_t i = 0; i < reg->count; i++) {
        if (reg->items[i].is_internal && str_eq(reg->items[i].name, name))
            return &reg->items[i];
    }
    return NULL;
}

const struct runtime *runtime_find(const struct runtime_registry *reg, const char *name)
{
    for (size_t i = 0; i < reg->count; i++) {
        if (!reg->items[i].is_internal &&
            (str_eq(reg->items[i].name, name) || strv_has(&reg->items[i].aliases, name)))
            return &reg->items[i];
    }
    return NULL;
}

/* Every installation has base.json beside its runtimes. So its presence tells such a directory
 * from one that only happens to be called runtimes. */
static bool is_main_dir(const char *dir)
{
    cleanup_free char *base = xasprintf("%s/base.json", dir);

    return access(base, R_OK) == 0;
}

char *runtime_main_dir(const struct lang_dirs *dirs)
{
    static const char *const beside[] = {
        "../runtimes", "../../../runtimes", "../share/hermes/runtimes"};
    const char *named = dirs->runtimes;

    if (named != NULL && named[0] != '\0')
        return is_main_dir(named) ? realpath(named, NULL) : NULL;
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
        cleanup_free char *dir = fs_beside_self(beside[i]);

        if (dir != NULL && is_main_dir(dir))
            return realpath(dir, NULL);
    }
    return is_main_dir("/usr/share/hermes/runtimes") ? xstrdup("/usr/share/hermes/runtimes")
                                                     : NULL;
}

static int list_dirs(const struct lang_dirs *dirs, struct strv *ret, struct err *err)
{
    char *main_dir = runtime_main_dir(dirs);
    const char *more = dirs->more;

    if (main_dir == NULL)
        return err_set(err, ERR_UNAVAILABLE, ENOENT,
            "cannot find the runtimes directory (with base.json); set HERMES_RUNTIMES to it");
    strv_add_owned(ret, main_dir);
    while (more != NULL && *more != '\0') {
        size_t len = strcspn(more, ":");

        if (len > 0)
            strv_add_owned(ret, xstrndup(more, len));
        more += len + (more[len] == ':');
    }
    return 0;
}

static bool has_quoted(const struct buf *text, const char *word)
{
    cleanup_free char *quoted = xasprintf("\"%s\"", word);

    return memmem(text->data, text->len, quoted, strlen(quoted)) != NULL;
}

static bool may_match(const struct buf *text, const struct wanted *wanted)
{
    if (wanted->word == NULL)
        return true;
    return has_quoted(text, wanted->word) ||
           (wanted->extension != NULL && has_quoted(text, wanted->extension));
}

static bool matches(const struct runtime *rt, const struct wanted *wanted)
{
    if (wanted->word == NULL)
        return true;
    return str_eq(rt->name, wanted->word) || strv_has(&rt->aliases, wanted->word) ||
           (wanted->extension != NULL && strv_has(&rt->extensions, wanted->extension));
}

/* A name or alias may stand for one runtime only: an operator's directory cannot replace a
 * runtime. */
static int check_unique(
    const struct runtime_registry *reg, const struct runtime *rt, struct err *err)
{
    for (size_t i = 0; i <= rt->aliases.count; i++) {
        const char *name = i == 0 ? rt->name : rt->aliases.items[i - 1];
        const struct runtime *other = runtime_find(reg, name);

        if (other != NULL)
            return err_field(err, i == 0 ? "name" : "aliases",
                "%s/runtime.json: \"%s\" is already a name of %s/runtime.json", rt->dir, name,
                other->dir);
    }
    return 0;
}

/* Adds dir/name/runtime.json if it is wanted. Ignores a directory without that file. */
static int load_one(struct runtime_registry *reg, int dir_fd, const char *dir, const char *name,
    const struct wanted *wanted, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/runtime.json", name);
    cleanup_free char *full = xasprintf("%s/%s", dir, name);
    cleanup_buf struct buf text = {0};
    struct runtime rt;

    buf_init(&text, RUNTIME_FILE_MAX);
    int r = fs_read_file(dir_fd, path, &text);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    if (r < 0)
        return err_set(
            err, ERR_INVALID, -r, "%s/runtime.json: cannot be read: %s", full, strerror(-r));
    if (!may_match(&text, wanted))
        return 0;
    if ((r = runtime_file_read(full, wanted->home, text.data, text.len, NULL, &rt, err)) < 0)
        return r;
    if (!matches(&rt, wanted)) {
        runtime_done(&rt);
        return 0;
    }
    if ((r = check_unique(reg, &rt, err)) < 0) {
        runtime_done(&rt);
        return r;
    }
    if (wanted->word == NULL)
        runtime_check_parts(&rt);
    rt.text = buf_take(&text, &rt.text_len);
    reg->items = xreallocarray(reg->items, reg->count + 1, sizeof(*reg->items));
    reg->items[reg->count++] = rt;
    return 0;
}

static bool is_plain_name(const char *name)
{
    return name[0] != '\0' && strnlen(name, NAME_LEN_MAX + 1) <= NAME_LEN_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_+-") == strlen(name);
}

static int load_dir(
    struct runtime_registry *reg, const char *dir, const struct wanted *wanted, struct err *err)
{
    cleanup_closedir DIR *d = opendir(dir);
    struct dirent *entry;
    int r = 0;

    if (d == NULL)
        return err_set(
            err, ERR_INVALID, errno, "%s: cannot list runtimes: %s", dir, strerror(errno));
    /* A runtime's name is the name of its directory: no search is needed. */
    if (wanted->word != NULL && is_plain_name(wanted->word))
        r = load_one(reg, dirfd(d), dir, wanted->word, wanted, err);
    if (r < 0 || (wanted->word != NULL && reg->count > 0))
        return r;
    while (r == 0 && (entry = readdir(d)) != NULL) {
        if (!is_plain_name(entry->d_name) || entry->d_type == DT_REG)
            continue;
        r = load_one(reg, dirfd(d), dir, entry->d_name, wanted, err);
        if (wanted->word != NULL && reg->count > 0)
            break;
    }
    return r;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct runtime *)a)->name, ((const struct runtime *)b)->name);
}

static int load_dirs(struct runtime_registry *reg, const struct lang_dirs *dirs,
    const struct wanted *wanted, struct err *err)
{
    CLEANUP(strv_done) struct strv list = {0};
    int r = list_dirs(dirs, &list, err);

    for (size_t i = 0; r == 0 && i < list.count; i++) {
        r = load_dir(reg, list.items[i], wanted, err);
        if (wanted->word != NULL && reg->count > 0)
            break;
    }
    return r;
}

int runtime_load(struct runtime_registry *ret, const struct lang_dirs *dirs, const char *only,
    struct err *err)
{
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct wanted wanted = {.word = only, .home = dirs->home};

    if (only != NULL) {
        const char *slash = strrchr(only, '/');
        const char *base = slash != NULL ? slash + 1 : only;

        wanted.extension = strrchr(base, '.');
    }
    int r = load_dirs(&reg, dirs, &wanted, err);
    if (r < 0)
        return r;
    if (only != NULL && reg.count == 0)
        return err_field(err, "language",
            "unknown language \"%.64s\"; `hermes runtimes` lists those there are", only);
    if (reg.count > 1)
        qsort(reg.items, reg.count, sizeof(*reg.items), by_name);
    *ret = take_struct(reg);
    return 0;
}

int runtime_load_sdk(struct runtime_registry *reg, struct err *err)
{
    for (size_t i = 0; i < reg->count; i++) {
        struct runtime *rt = &reg->items[i];

        for (size_t k = 0; k < rt->sdk_names.count; k++) {
            cleanup_free char *path = xasprintf("%s/sdk/%s", rt->dir, rt->sdk_names.items[k]);
            cleanup_buf struct buf text;
            size_t size;

            buf_init(&text, SDK_FILE_MAX);
            int r = fs_read_file(AT_FDCWD, path, &text);
            if (r < 0)
                return err_set(err, ERR_INVALID, -r, "%s: %s", path, strerror(-r));
            char *content = buf_take(&text, &size);
            run_files_add(&rt->sdk, rt->sdk_names.items[k], content, size, false);
        }
    }
    return 0;
}
