/* SPDX-License-Identifier: Apache-2.0 */

/* Members of an image's archive. The input is a list of texts with bytes 0xff between; text 0
 * is index.json and manifest.json, the others are blobs. "@N" in a text becomes the digest of
 * text N (a later one), "#N" its size: chance finds no digest. */

#include "base/buf.h"
#include "base/os/fs.h"
#include "image/oci_archive.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXTS_MAX = 8 };

struct text {
    struct buf bytes;
    char digest[OCI_DIGEST_LEN + 1];
};

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* Fills in what a text says of those behind it. */
static void expand(struct text *all, size_t at, const uint8_t *data, size_t len)
{
    struct buf *to = &all[at].bytes;
    buf_init(to, 1 << 20);
    for (size_t i = 0; i < len; i++) {
        size_t other = i + 1 < len && data[i + 1] >= '0' ? data[i + 1] - (size_t)'0' : 0;
        bool is_mark = (data[i] == '@' || data[i] == '#') && other > at && other < TEXTS_MAX;
        if (is_mark && data[i] == '@')
            (void)buf_append_str(to, all[other].digest);
        else if (is_mark)
            (void)buf_printf(to, "%zu", all[other].bytes.len);
        else
            (void)buf_append(to, data + i, 1);
        i += is_mark;
    }
    oci_digest_text(to->data ? to->data : "", to->len, all[at].digest);
}

static void write_member(int dir_fd, size_t number, const struct buf *bytes)
{
    char name[8];
    (void)snprintf(name, sizeof(name), "%zu", number);
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    check(fd >= 0 && fs_write_all(fd, bytes->data, bytes->len) == 0);
    (void)close(fd);
}

static void check_image(const struct oci_archive *a, const struct oci_image *image)
{
    check((image->kind == OCI_ROOT_TAR) == (image->layer_count == 0));
    check(image->layer_count <= OCI_LAYERS_MAX);
    for (size_t i = 0; i < image->layer_count; i++) {
        struct err err = {0};
        check(oci_is_digest(image->layers[i].diff_id));
        int fd = oci_layer_open(a, &image->layers[i], &err);
        check(fd >= 0 || err.code != ERR_NONE);
        if (fd >= 0)
            (void)close(fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct text all[TEXTS_MAX];
    const uint8_t *from[TEXTS_MAX] = {0};
    size_t len[TEXTS_MAX] = {0}, count = 0;
    char top[] = "/dev/shm/hermes-fuzz-oci-XXXXXX";
    if (size == 0)
        return 0;
    bool is_docker = data[0] & 1;
    for (size_t at = 1; at < size && count < TEXTS_MAX; at += len[count++] + 1) {
        const uint8_t *end = memchr(data + at, 0xff, size - at);
        from[count] = data + at;
        len[count] = end ? (size_t)(end - data) - at : size - at;
    }
    check(mkdtemp(top) != NULL);
    int dir_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct buf list;
    buf_init(&list, 1 << 16);
    for (size_t i = TEXTS_MAX; i-- > 0;) {
        expand(all, i, from[i], len[i]);
        write_member(dir_fd, i, &all[i].bytes);
    }
    (void)buf_printf(&list, "{\"members\":[{\"name\":\"%s\",\"file\":0}",
        is_docker ? "manifest.json" : "index.json");
    (void)buf_append_str(&list, is_docker ? "" : ",{\"name\":\"oci-layout\",\"file\":0}");
    for (size_t i = 1; i < TEXTS_MAX; i++)
        (void)buf_printf(&list,
            ",{\"name\":\"blobs/sha256/%s\",\"file\":%zu},"
            "{\"name\":\"%zu.tar\",\"file\":%zu}",
            all[i].digest + strlen("sha256:"), i, i, i);
    (void)buf_append_str(&list, "]}");

    struct oci_archive *a = NULL;
    struct oci_image image = {0};
    struct err err = {0};
    check(oci_archive_open(list.data, list.len, dir_fd, &a, &err) == 0);
    if (oci_import(a, NULL, &image, &err) == 0)
        check_image(a, &image);
    else
        check(err.code == ERR_INVALID);
    oci_image_done(&image);
    oci_archive_free(a);
    a = NULL;
    (void)oci_archive_open((const char *)data, size, dir_fd, &a, &err); /* any list at all */
    oci_archive_free(a);

    (void)close(dir_fd);
    (void)fs_remove_tree(AT_FDCWD, top);
    buf_done(&list);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        buf_done(&all[i].bytes);
    return 0;
}
