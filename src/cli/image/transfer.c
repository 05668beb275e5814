/* SPDX-License-Identifier: Apache-2.0 */

/* hermes image import and export: the images of this host, without a server. */

#include "cli/image/image.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "image/export.h"
#include "image/import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The archive is read twice, so input that is not a regular file is copied to one. */
static int open_archive(struct image_place *place, const char *path, struct err *err)
{
    struct stat st;
    cleanup_close int in = input_open(path, err);
    if (in < 0)
        return in;
    if (fstat(in, &st) == 0 && S_ISREG(st.st_mode))
        return take_fd(&in);
    cleanup_close int spool = image_spool_open(place->store, err);
    if (spool < 0)
        return spool;
    int r = fs_copy_fd(in, spool);
    return r < 0 ? err_set(err, err_code_of(-r), -r, "%s: %s", path, strerror(-r))
                 : take_fd(&spool);
}

static int find_language(struct runtime_registry *runtimes, const char *name,
    const struct runtime **ret, struct err *err)
{
    *ret = name ? runtime_find(runtimes, name) : NULL;
    if (name && (!*ret || !(*ret)->run.has_images))
        return err_field(err, "language", "language `%.64s` does not support images", name);
    for (size_t i = 0; i < runtimes->count; i++) {
        struct runtime *rt = &runtimes->items[i];
        bool is_wanted = *ret ? rt == *ret : rt->run.image_programs.count > 0;
        rt->available = rt->available && (is_wanted || rt->is_internal);
    }
    return 0;
}

int image_command_import(
    struct image_place *place, const struct image_args *args, struct err *err)
{
    CLEANUP(runtime_registry_done) struct runtime_registry runtimes = {0};
    CLEANUP(image_done) struct image image = {0};
    const struct lang_dirs dirs = cli_dirs();
    const struct run_limits limits =
        image_build_limits(IMAGE_WALL_MS, IMAGE_MEMORY_MB, IMAGE_DISK_MB);
    const char *why = args->recipe.name ? image_name_problem(args->recipe.name) : NULL;
    struct engine *engine = NULL;
    struct image_import from = {.name = args->recipe.name, .wanted = args->ref};
    if (why)
        return err_field(err, "name", "%s", why);
    int r = image_runtimes_load(&dirs, &runtimes, err);
    if (r == 0)
        r = find_language(&runtimes, args->recipe.language, &from.runtime, err);
    cleanup_close int archive = r < 0 ? r : open_archive(place, args->words[1], err);
    if (archive < 0)
        return archive;
    from.archive_fd = archive;
    from.runtimes = &runtimes;
    struct image_builder builder = {.store = place->store,
        .tool = runtime_find_internal(&runtimes, IMAGE_BUILD_TOOL),
        .limits = &limits,
        .owner = IMAGE_FOR_ALL,
        .cancel_fd = cli_catch_signals()};
    r = image_engine_open(place, &runtimes, &dirs, &limits, &engine, err);
    builder.engine = engine;
    cleanup_close int turn =
        r < 0 ? -EBADF : image_build_turn(place->store, builder.cancel_fd, err);
    if (r == 0)
        r = turn < 0 ? turn : image_import(&builder, &from, &image, err);
    if (r == 0)
        image_print(&image, args->json);
    engine_close(engine);
    return r;
}

static int write_archive(void *context, const void *data, size_t len)
{
    return fs_write_all(*(const int *)context, data, len);
}

/* The file appears under its name when it is complete. */
static int export_to_file(struct image_place *place, const struct image *image,
    const struct image_export *options, const char *path, struct err *err)
{
    cleanup_free char *temporary = xasprintf("%s.%d.part", path, (int)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(err, err_code_of(errno), errno, "%s: %s", temporary, strerror(errno));
    int r = image_export(place->store, image, options, write_archive, &fd, err);
    if (close(fd) < 0 && r == 0)
        r = err_set(err, err_code_of(errno), errno, "%s: %s", path, strerror(errno));
    if (r == 0 && rename(temporary, path) < 0)
        r = err_set(err, err_code_of(errno), errno, "%s: %s", path, strerror(errno));
    if (r < 0)
        (void)unlink(temporary);
    return r;
}

int image_command_export(
    struct image_place *place, const struct image_args *args, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    struct image_export options;
    int out = STDOUT_FILENO;
    int cancel_fd = cli_catch_signals();
    int r = image_export_parse(args->format, args->compression, &options, err);
    if (r == 0)
        r = image_store_find(place->store, IMAGE_FOR_ALL, args->words[1], &image, err);
    if (r < 0)
        return r;
    options.cancel_fd = &cancel_fd;
    if (args->output && !str_eq(args->output, "-"))
        return export_to_file(place, &image, &options, args->output, err);
    if (isatty(out))
        return err_set(err, ERR_INVALID, EINVAL,
            "standard output is a terminal; name a file with --output");
    return image_export(place->store, &image, &options, write_archive, &out, err);
}
