/* SPDX-License-Identifier: Apache-2.0 */

/* Archives of strangers, unpacked for real into a directory in memory. Nothing may appear
 * beside that directory, and what was taken packs to a stream that unpacks to the same stream.
 */

#include "base/buf.h"
#include "base/os/fs.h"
#include "layer/input.h"
#include "layer/pack.h"
#include "layer/split.h"
#include "layer/unpack.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory {
    const uint8_t *data;
    size_t left;
};

static void check(bool holds)
{
    if (!holds)
        abort();
}

static ssize_t read_memory(void *context, void *data, size_t len)
{
    struct memory *m = context;
    size_t n = m->left < len ? m->left : len;
    memcpy(data, m->data, n);
    m->data += n;
    m->left -= n;
    return (ssize_t)n;
}

static int write_memory(void *context, const void *data, size_t len)
{
    return buf_append(context, data, len);
}

static int take(int top_fd, const char *name, const void *data, size_t len, struct buf *ret)
{
    static const struct layer_limits limits = {.max_bytes = 1 << 20, .max_entries = 200};
    static const struct strv nothing;
    struct memory m = {.data = data, .left = len};
    struct layer_report report;
    struct err err = {0};
    check(mkdirat(top_fd, name, 0755) == 0);
    int dir_fd = openat(top_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(dir_fd >= 0);
    struct layer_input *in = layer_input_new(read_memory, &m, layer_stream_max(&limits), &err);
    int r = layer_unpack(dir_fd, layer_input_read, in, &limits, &report, &err);
    layer_input_free(in);
    if (r == 0)
        check(layer_pack(dir_fd, &nothing, write_memory, ret, &err) == 0);
    else
        check(err.code == ERR_INVALID || err.code == ERR_TOO_LARGE);
    (void)close(dir_fd);
    return r;
}

/* The same archive as that of an image. Its list has nothing that would need escaping. */
static void take_apart(int top_fd, const void *data, size_t len)
{
    static const struct layer_limits limits = {.max_bytes = 1 << 20, .max_entries = 200};
    struct memory m = {.data = data, .left = len};
    struct err err = {0};
    struct buf list;
    buf_init(&list, SPLIT_LIST_MAX);
    check(mkdirat(top_fd, "members", 0755) == 0);
    int dir_fd = openat(top_fd, "members", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (layer_split(dir_fd, read_memory, &m, &limits, &list, &err) == 0) {
        for (size_t i = 0; i + 1 < list.len; i++)
            check(list.data[i] > ' ' && list.data[i] < 0x7f && list.data[i] != '\\');
    } else {
        check(err.code == ERR_INVALID || err.code == ERR_TOO_LARGE);
    }
    (void)close(dir_fd);
    buf_done(&list);
}

/* Makes the sums of plain headers right, which chance would never do. */
static void mend_sums(uint8_t *data, size_t size)
{
    for (uint8_t *block = data; size >= TAR_BLOCK; block += TAR_BLOCK, size -= TAR_BLOCK) {
        if (memcmp(block + 257, "ustar", 5) == 0)
            (void)snprintf((char *)block + 148, 8, "%06o", tar_sum(block) & 0777777);
    }
}

static size_t count_entries(int top_fd)
{
    struct stat st;
    check(fstat(top_fd, &st) == 0);
    return (size_t)st.st_nlink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char top[] = "/dev/shm/hermes-fuzz-layer-XXXXXX";
    struct buf first, second;
    buf_init(&first, 16 << 20);
    buf_init(&second, 16 << 20);
    check(mkdtemp(top) != NULL);
    int top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(top_fd >= 0);
    uint8_t *copy = malloc(size + 1);
    memcpy(copy, data, size);
    mend_sums(copy, size);
    if (take(top_fd, "first", copy, size, &first) == 0) {
        check(take(top_fd, "second", first.data, first.len, &second) == 0);
        check(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    }
    take_apart(top_fd, copy, size);
    check(count_entries(top_fd) <= 5); /* itself, its name, and one for each directory */
    (void)close(top_fd);
    (void)fs_remove_tree(AT_FDCWD, top);
    free(copy);
    buf_done(&first);
    buf_done(&second);
    return 0;
}
