/* SPDX-License-Identifier: Apache-2.0 */

/* See files.h. */

#include "lang/files.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void run_files_add(
    struct run_files *files, const char *name, char *content, size_t size, bool executable)
{
    files->items = xgrow(files->items, files->count, sizeof(*files->items));
    files->items[files->count++] = (struct run_file){
        .name = xstrdup(name),
        .content = content,
        .size = size,
        .executable = executable,
    };
}

void run_files_lend(
    struct run_files *files, const char *name, const struct run_file *lender, bool executable)
{
    run_files_add(files, name, lender->content, lender->size, executable);
    files->items[files->count - 1].borrowed = true;
}

struct run_file *run_files_find(const struct run_files *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++) {
        if (strcmp(files->items[i].name, name) == 0)
            return &files->items[i];
    }
    return NULL;
}

/* Orders by name, with '/' before every other character, so that a file and the files below it
 * are neighbours. */
static int by_path(const void *a, const void *b)
{
    const char *x = *(const char *const *)a;
    const char *y = *(const char *const *)b;

    while (*x != '\0' && *x == *y) {
        x++;
        y++;
    }
    int left = *x == '/' ? 1 : *x == '\0' ? 0 : 1 + (unsigned char)*x;
    int right = *y == '/' ? 1 : *y == '\0' ? 0 : 1 + (unsigned char)*y;
    return left - right;
}

int run_files_check(const struct run_files *files, struct err *err)
{
    for (size_t i = 0; i < files->count; i++) {
        const char *problem =
            str_name_problem(files->items[i].name, strlen(files->items[i].name));

        if (problem != NULL)
            return err_field(
                err, "files", "file name `%.128s`: %s", files->items[i].name, problem);
    }
    if (files->count < 2)
        return 0;
    cleanup_free const char **names = xcalloc(files->count, sizeof(*names));
    for (size_t i = 0; i < files->count; i++)
        names[i] = files->items[i].name;
    qsort(names, files->count, sizeof(*names), by_path);
    for (size_t i = 1; i < files->count; i++) {
        size_t len = strlen(names[i - 1]);

        if (strncmp(names[i], names[i - 1], len) != 0)
            continue;
        if (names[i][len] == '\0')
            return err_field(err, "files", "two files are named `%.128s`", names[i]);
        if (names[i][len] == '/')
            return err_field(err, "files",
                "`%.128s` is a file, so `%.128s` cannot lie below it", names[i - 1], names[i]);
    }
    return 0;
}

static void file_done(struct run_file *file)
{
    free(file->name);
    if (file->mapped_size)
        (void)munmap(file->content, file->mapped_size);
    else if (!file->borrowed)
        free(file->content);
}

void run_files_remove(struct run_files *files, const struct run_files *named)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->count; i++) {
        if (run_files_find(named, files->items[i].name))
            file_done(&files->items[i]);
        else
            files->items[kept++] = files->items[i];
    }
    files->count = kept;
}

void run_files_done(struct run_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        file_done(&files->items[i]);
    free(files->items);
    free(files->backing);
    *files = (struct run_files){0};
}
