/* SPDX-License-Identifier: Apache-2.0 */

/* A registry as bytes, from hermes-prepare to the server. Root finds the languages on the host;
 * the server's user may be unable to read their directories. Each field is a length and its
 * bytes. Both sides are of the same build, and every length is checked. */

#include "lang/runtime.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "lang/runtime_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RUNTIMES_MAX = 1024 };

static int put(struct buf *to, const char *data, size_t len)
{
    uint64_t size = len;
    int r = buf_append(to, &size, sizeof(size));

    return r < 0 || len == 0 ? r : buf_append(to, data, len);
}

static int put_text(struct buf *to, const char *text)
{
    return put(to, text, text != NULL ? strlen(text) : 0);
}

static int pack_one(const struct runtime *rt, struct buf *to)
{
    const uint32_t numbers[] = {rt->available, rt->candidate};
    int r = put(to, (const char *)numbers, sizeof(numbers));

    if (r == 0)
        r = put_text(to, rt->dir);
    if (r == 0)
        r = put(to, rt->text, rt->text_len);
    if (r == 0)
        r = put_text(to, rt->home);
    if (r == 0)
        r = put_text(to, rt->user_home);
    if (r == 0)
        r = put_text(to, rt->missing);
    if (r == 0)
        r = put_text(to, rt->version);
    if (r == 0)
        r = put_text(to, rt->compiler);
    for (size_t i = 0; r == 0 && i < rt->sdk.count; i++)
        r = put(to, rt->sdk.items[i].content, rt->sdk.items[i].size);
    return r;
}

int runtime_pack(const struct runtime_registry *reg, struct buf *to)
{
    uint64_t count = reg->count;
    int r = buf_append(to, &count, sizeof(count));

    for (size_t i = 0; r == 0 && i < reg->count; i++)
        r = pack_one(&reg->items[i], to);
    return r;
}

struct reader {
    const char *at;
    size_t left;
    bool failed;
};

static void take_bytes(struct reader *r, void *to, size_t size)
{
    if (r->failed || size > r->left) {
        r->failed = true;
        memset(to, 0, size);
        return;
    }
    memcpy(to, r->at, size);
    r->at += size;
    r->left -= size;
}

/* The next field as a string of its own; "" after a failure. */
static char *take_field(struct reader *r, size_t *ret_len)
{
    uint64_t size;

    take_bytes(r, &size, sizeof(size));
    if (size > r->left)
        r->failed = true;
    if (r->failed)
        size = 0;
    char *text = xmalloc(size + 1);
    take_bytes(r, text, size);
    text[size] = '\0';
    if (ret_len != NULL)
        *ret_len = size;
    return text;
}

/* NULL for an empty field. */
static char *take_optional(struct reader *r)
{
    cleanup_free char *text = take_field(r, NULL);

    return text[0] != '\0' ? take_ptr(text) : NULL;
}

static int unpack_one(struct reader *r, struct runtime *ret, struct err *err)
{
    uint64_t size;
    uint32_t numbers[2];
    size_t text_len;

    take_bytes(r, &size, sizeof(size));
    take_bytes(r, numbers, sizeof(numbers));
    cleanup_free char *dir = take_field(r, NULL);
    cleanup_free char *text = take_field(r, &text_len);
    cleanup_free char *home = take_field(r, NULL);
    cleanup_free char *user_home = take_optional(r);
    cleanup_free char *missing = take_optional(r);
    cleanup_free char *version = take_optional(r);
    cleanup_free char *compiler = take_optional(r);
    if (r->failed || size != sizeof(numbers))
        return -EPROTO;
    const struct runtime_found found = {
        .available = numbers[0] != 0, .candidate = numbers[1], .home = home};
    int result = runtime_file_read(dir, user_home, text, text_len, &found, ret, err);
    if (result < 0)
        return result;
    free(ret->missing);
    ret->available = found.available;
    ret->missing = take_ptr(missing);
    ret->version = take_ptr(version);
    ret->compiler = take_ptr(compiler);
    ret->text = take_ptr(text);
    ret->text_len = text_len;
    for (size_t i = 0; i < ret->sdk_names.count; i++) {
        size_t len;
        char *content = take_field(r, &len);
        run_files_add(&ret->sdk, ret->sdk_names.items[i], content, len, false);
    }
    if (r->failed)
        runtime_done(ret);
    return r->failed ? -EPROTO : 0;
}

int runtime_unpack(const struct buf *from, struct runtime_registry *ret, struct err *err)
{
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct reader reader = {.at = from->data, .left = from->len};
    uint64_t count;
    int r = 0;

    take_bytes(&reader, &count, sizeof(count));
    if (reader.failed || count > RUNTIMES_MAX)
        r = -EPROTO;
    else
        reg.items = xcalloc(count, sizeof(*reg.items));
    for (; r == 0 && reg.count < count; reg.count++)
        r = unpack_one(&reader, &reg.items[reg.count], err);
    if (r == 0 && reader.left > 0)
        r = -EPROTO;
    if (r == -EPROTO)
        return err_set(err, ERR_INTERNAL, EPROTO,
            "hermes-prepare and hermes-server are of different builds; install both anew");
    if (r < 0)
        return r;
    *ret = take_struct(reg);
    return 0;
}
