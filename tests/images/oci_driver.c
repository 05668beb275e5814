/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of image/oci.h as commands.
 *
 *   oci-driver import DIR [NAME] < LIST         prints the image; opens, and so checks, each
 * layer oci-driver check DIFF_ID < REPORT oci-driver export oci|docker gzip|zstd NAME SPOOL_DIR
 * LAYER_DIR... < CONFIG > ARCHIVE
 *
 * Exit status 1 and the message on stderr when a function fails. */

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/oci.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS_MAX = 300 };

static int fail(const struct err *err)
{
    (void)fprintf(stderr, "%s\n", err->message);
    return 1;
}

static int print_image(const struct oci_archive *a, const struct oci_image *image)
{
    static const char *const kinds[] = {"root", "oci", "docker"};
    struct err err = {0};
    json_t *layers = json_array();
    for (size_t i = 0; i < image->layer_count; i++) {
        const struct oci_layer *l = &image->layers[i];
        cleanup_close int fd = oci_layer_open(a, l, &err);
        if (fd < 0)
            return fail(&err);
        (void)json_array_append_new(layers, json_pack("{s:i, s:s, s:s}", "file", (int)l->file,
                                                "digest", l->digest, "diff_id", l->diff_id));
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:O?, s:o}", "kind", kinds[image->kind], "name",
        image->name, "manifest", image->manifest, "config", image->config, "layers", layers);
    (void)json_dumpf(all, stdout, JSON_SORT_KEYS);
    json_decref(all);
    return 0;
}

static int run_import(const struct buf *in, int argc, char **argv)
{
    struct err err = {0};
    struct oci_archive *a = NULL;
    struct oci_image image = {0};
    cleanup_close int dir_fd = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (oci_archive_open(in->data ? in->data : "", in->len, dir_fd, &a, &err) < 0)
        return fail(&err);
    int status = oci_import(a, argc > 3 ? argv[3] : NULL, &image, &err) < 0
                     ? fail(&err)
                     : print_image(a, &image);
    oci_image_done(&image);
    oci_archive_free(a);
    return status;
}

static int run_check(const struct buf *in, char **argv)
{
    struct err err = {0};
    struct oci_layer layer = {0};
    (void)snprintf(layer.diff_id, sizeof(layer.diff_id), "%s", argv[2]);
    return oci_layer_check(&layer, in->data ? in->data : "", in->len, &err) < 0 ? fail(&err)
                                                                                : 0;
}

static int write_stdout(void *context, const void *data, size_t len)
{
    return fs_write_all(STDOUT_FILENO, data, len);
}

static int run_export(const struct buf *in, int argc, char **argv)
{
    struct err err = {0};
    int fds[LAYERS_MAX];
    struct oci_export x = {
        .kind = str_eq(argv[2], "docker") ? OCI_DOCKER : OCI_LAYOUT,
        .packing = str_eq(argv[3], "zstd") ? OCI_ZSTD : OCI_GZIP,
        .name = argv[4],
        .spool_fd = open(argv[5], O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        .layer_fds = fds,
    };
    json_t *config = json_loadb(in->data ? in->data : "", in->len, 0, NULL);
    x.config = config;
    for (int i = 6; i < argc && x.layer_count < LAYERS_MAX; i++)
        fds[x.layer_count++] = open(argv[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = oci_export(&x, write_stdout, NULL, &err);
    for (size_t i = 0; i < x.layer_count; i++)
        (void)close(fds[i]);
    (void)close(x.spool_fd);
    json_decref(config);
    return r < 0 ? fail(&err) : 0;
}

int main(int argc, char **argv)
{
    cleanup_buf struct buf in = {0};
    buf_init(&in, 16 << 20);
    if (argc < 3 || fs_read_to_end(STDIN_FILENO, 0, &in) < 0)
        return 2;
    if (str_eq(argv[1], "import"))
        return run_import(&in, argc, argv);
    if (str_eq(argv[1], "check"))
        return run_check(&in, argv);
    if (str_eq(argv[1], "export") && argc > 6)
        return run_export(&in, argc, argv);
    return 2;
}
