/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the tests of core: the shipped runtimes, and directories that vanish afterwards. */

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "lang/state_dir.h"
#include "run/run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The shipped runtimes. Tests run in the build directory, from which __FILE__ leads to the
 * sources; in the virtual machine, HERMES_RUNTIMES names the directory. */
static inline const struct lang_dirs *fixture_dirs(void)
{
    static char path[4096];
    static struct lang_dirs dirs = {.runtimes = path};
    const char *named = getenv("HERMES_RUNTIMES");
    dirs.home = getenv("HOME");

    if (named != NULL)
        (void)snprintf(path, sizeof(path), "%s", named);
    else
        (void)snprintf(path, sizeof(path), "%.*s/../../runtimes",
            (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__);
    return &dirs;
}

static inline char *fixture_make_dir(void)
{
    char *path = xstrdup("/tmp/hermes-test-XXXXXX");

    if (mkdtemp(path) == NULL)
        abort();
    return path;
}

static inline void fixture_remove_dir(char **path)
{
    if (*path != NULL && fs_remove_tree(AT_FDCWD, *path) < 0)
        abort();
    free(*path);
}
#define cleanup_dir CLEANUP(fixture_remove_dir)

static inline void fixture_write(const char *dir, const char *name, const char *text)
{
    cleanup_free char *path = xasprintf("%s/%s", dir, name);
    cleanup_free char *parent = xstrdup(path);

    *strrchr(parent, '/') = '\0';
    (void)fs_mkdirs(AT_FDCWD, parent, 0755);
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0)
        abort();
}

static inline void fixture_add_file(struct run_spec *spec, const char *name, const char *text)
{
    run_files_add(&spec->files, name, xstrdup(text), strlen(text), false);
}
