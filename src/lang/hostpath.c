/* SPDX-License-Identifier: Apache-2.0 */

/* See hostpath.h. glob(3) is not used: its tilde support pulls the name service into a static
 * program. Patterns come from trusted files, so the walk is a plain recursion over the
 * components of the pattern. */

#include "lang/hostpath.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#error "name the library directory of this architecture"
#endif

static const char multiarch_word[] = "{multiarch}";

char *hostpath_expand(const char *path, const char *home)
{
    cleanup_free char *full = NULL;

    if (str_has_prefix(path, "{bin}/")) /* the directory of the other Hermes programs */
        return fs_beside_self(path + strlen("{bin}/"));
    if (path[0] == '~' && path[1] == '/') {
        if (home == NULL || home[0] != '/')
            home = geteuid() == 0 ? "/root" : NULL;
        if (home == NULL)
            return NULL;
        full = xasprintf("%s%s", home, path + 1);
    } else {
        full = xstrdup(path);
    }
    char *at = strstr(full, multiarch_word);
    if (at == NULL)
        return take_ptr(full);
    *at = '\0';
    return xasprintf("%s" MULTIARCH "%s", full, at + sizeof(multiarch_word) - 1);
}

bool hostpath_has_wildcard(const char *path)
{
    return strpbrk(path, "*?[") != NULL;
}

static int newest_first(const void *a, const void *b)
{
    return strverscmp(*(char *const *)b, *(char *const *)a);
}

/* Names in dir that match one component, newest first. */
static void match_names(const char *dir, const char *component, struct strv *ret)
{
    cleanup_closedir DIR *d = opendir(dir[0] != '\0' ? dir : "/");
    struct dirent *entry;

    if (d == NULL)
        return;
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] == '.' && component[0] != '.')
            continue;
        if (str_glob_match(component, entry->d_name))
            strv_add(ret, entry->d_name);
    }
    if (ret->count > 1)
        qsort(ret->items, ret->count, sizeof(*ret->items), newest_first);
}

/* `base` is the part matched so far, without a trailing slash. `rest` begins with '/' or is
 * empty. */
static void walk(const char *base, const char *rest, struct strv *ret)
{
    if (*rest == '\0') {
        if (access(base, F_OK) == 0)
            strv_add(ret, base);
        return;
    }
    size_t len = strcspn(rest + 1, "/");
    cleanup_free char *component = xstrndup(rest + 1, len);
    const char *after = rest + 1 + len;

    if (!hostpath_has_wildcard(component)) {
        cleanup_free char *next = xasprintf("%s/%s", base, component);

        walk(next, after, ret);
        return;
    }
    CLEANUP(strv_done) struct strv names = {0};
    match_names(base, component, &names);
    for (size_t i = 0; i < names.count; i++) {
        cleanup_free char *next = xasprintf("%s/%s", base, names.items[i]);

        walk(next, after, ret);
    }
}

void hostpath_glob(const char *pattern, struct strv *ret)
{
    if (!hostpath_has_wildcard(pattern)) {
        if (access(pattern, F_OK) == 0)
            strv_add(ret, pattern);
        return;
    }
    walk("", pattern, ret);
}
