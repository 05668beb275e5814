/* SPDX-License-Identifier: Apache-2.0 */

/* See input.h. */

#include "cli/run/input.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/input.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* In bytes. Files from MAP_FROM on are mapped instead of read. */
enum { MAX_FILE = 512 << 20, MAP_FROM = 128 << 10 };

/* Maps a large file instead of reading it. A zero page follows, so that it ends with a NUL. */
static bool map_file(int fd, size_t size, struct run_file *ret)
{
    const size_t page = 4096;
    size_t whole = (size + page) / page * page + page;
    char *at = mmap(NULL, whole, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    if (mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        (void)munmap(at, whole);
        return false;
    }
    ret->content = at;
    ret->size = size;
    ret->mapped_size = whole;
    return true;
}

int run_input_read(const char *path, struct run_file *ret, struct err *err)
{
    cleanup_buf struct buf b = {0};
    cleanup_close int fd = input_open(path, err);
    struct stat st;
    *ret = (struct run_file){0};
    if (fd < 0)
        return fd;
    if (!str_eq(path, "-") && fstat(fd, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return err_set(
                err, ERR_INVALID, EISDIR, "%s is a directory; name the file to run", path);
        ret->executable = st.st_mode & 0111;
        if (S_ISREG(st.st_mode) && st.st_size >= MAP_FROM && st.st_size <= MAX_FILE &&
            map_file(fd, (size_t)st.st_size, ret))
            return 0;
    }
    int r = input_take(fd, path, MAX_FILE, &b, err);
    if (r == 0)
        ret->content = buf_take(&b, &ret->size);
    return r;
}

int run_input_add(
    struct run_files *files, const char *name, const struct run_file *file, struct err *err)
{
    const char *problem = str_name_problem(name, strlen(name));
    run_files_add(files, name, file->content, file->size, file->executable);
    files->items[files->count - 1].mapped_size = file->mapped_size;
    return problem ? err_set(err, ERR_INVALID, EINVAL, "file name `%s`: %s", name, problem) : 0;
}

int run_input_add_packages(
    struct run_files *files, const char *program, const char *language, struct err *err)
{
    const char *name = str_eq(language, "python") ? "requirements.txt" : "package.json";
    const char *slash = strrchr(program, '/');
    cleanup_free char *path =
        xasprintf("%.*s%s", slash ? (int)(slash + 1 - program) : 0, program, name);
    struct run_file file;
    if (run_files_find(files, name))
        return 0;
    int r = run_input_read(path, &file, err);
    return r < 0 ? err_wrap(err, r, "--install") : run_input_add(files, name, &file, err);
}

int run_input_add_extra(struct run_files *files, const char *text, struct err *err)
{
    const char *colon = strrchr(text, ':');
    cleanup_free char *path = xstrndup(text, colon ? (size_t)(colon - text) : strlen(text));
    const char *slash = strrchr(path, '/');
    const char *name = colon ? colon + 1 : slash ? slash + 1 : path;
    struct run_file file;
    int r = run_input_read(path, &file, err);
    return r < 0 ? r : run_input_add(files, name, &file, err);
}
