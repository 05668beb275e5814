/* SPDX-License-Identifier: Apache-2.0 */

/* See entry.h. The layout is that of this machine; an entry of another layout or version
 * has another magic or fails the MAC. The parser trusts no length, although it only sees bytes
 * that passed the MAC: a leaked key must not become a hole in the server.
 *
 * Layout: magic, MAC, struct head, stdout, stderr, then per file struct file_head, name, NUL,
 * bytes, NUL */

#include "run/cache/entry.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <stdlib.h>
#include <string.h>

enum { MAC_SIZE = SHA256_DIGEST_SIZE, FILES_MAX = 65536, NAME_BYTES_MAX = 4096 };

static const char magic[8] = "HCACHE1\n";

struct head {
    uint64_t out_len;
    uint64_t err_len;
    uint32_t file_count;
    uint32_t reserved;
};

struct file_head {
    uint64_t size;
    uint32_t name_len; /* without the NUL */
    uint32_t executable;
};

void cache_entry_done(struct cache_entry *entry)
{
    run_files_done(&entry->files);
    *entry = (struct cache_entry){0};
}

/* The MAC covers the key too, so an entry under another key's name is invalid. */
static void make_mac(const struct cache_key *key, const uint8_t secret[CACHE_SECRET_SIZE],
    const struct buf *b, size_t from, uint8_t ret[MAC_SIZE])
{
    struct hmac_sha256_ctx ctx;

    hmac_sha256_set_key(&ctx, CACHE_SECRET_SIZE, secret);
    hmac_sha256_update(&ctx, sizeof(key->bytes), key->bytes);
    hmac_sha256_update(&ctx, b->len - from, (const uint8_t *)b->data + from);
    hmac_sha256_digest(&ctx, MAC_SIZE, ret);
}

static int append_file(struct buf *b, const struct run_file *file)
{
    struct file_head head = {.size = file->size,
        .name_len = (uint32_t)strlen(file->name),
        .executable = file->executable};
    int r = buf_append(b, &head, sizeof(head));

    if (r == 0)
        r = buf_append(b, file->name, head.name_len + 1);
    if (r == 0)
        r = buf_append(b, file->content, file->size);
    return r == 0 ? buf_append(b, "", 1) : r;
}

int cache_entry_write(const struct cache_entry *entry, const struct cache_key *key,
    const uint8_t secret[CACHE_SECRET_SIZE], struct buf *b)
{
    static const uint8_t no_mac[MAC_SIZE];
    struct head head = {.out_len = entry->out_len,
        .err_len = entry->err_len,
        .file_count = (uint32_t)entry->files.count};
    size_t start = b->len;
    int r = entry->files.count > FILES_MAX ? -EMSGSIZE : buf_append(b, magic, sizeof(magic));

    if (r < 0 || (r = buf_append(b, no_mac, MAC_SIZE)) < 0 ||
        (r = buf_append(b, &head, sizeof(head))) < 0 ||
        (r = buf_append(b, entry->out, entry->out_len)) < 0 ||
        (r = buf_append(b, entry->err, entry->err_len)) < 0)
        return r;
    for (size_t i = 0; r == 0 && i < entry->files.count; i++)
        r = append_file(b, &entry->files.items[i]);
    if (r == 0)
        make_mac(key, secret, b, start + sizeof(magic) + MAC_SIZE,
            (uint8_t *)b->data + start + sizeof(magic));
    return r;
}

/* The bytes still to parse. */
struct rest {
    char *at;
    size_t len;
};

/* Takes n bytes off the front; NULL when fewer are left. */
static char *take(struct rest *rest, uint64_t n)
{
    char *taken = rest->at;

    if (n > rest->len)
        return NULL;
    rest->at += n;
    rest->len -= n;
    return taken;
}

static int parse_file(struct rest *rest, struct run_files *files)
{
    struct file_head head;
    const char *from = take(rest, sizeof(head));

    if (from == NULL)
        return -EBADMSG;
    memcpy(&head, from, sizeof(head));
    if (head.name_len > NAME_BYTES_MAX || head.size > CACHE_ENTRY_MAX || head.executable > 1)
        return -EBADMSG;
    const char *name = take(rest, head.name_len + 1ull);
    char *content = take(rest, head.size + 1);
    if (name == NULL || content == NULL || name[head.name_len] != '\0' ||
        content[head.size] != '\0' || str_name_problem(name, head.name_len) != NULL)
        return -EBADMSG;
    run_files_add(files, name, content, head.size, head.executable != 0);
    files->items[files->count - 1].borrowed = true;
    return 0;
}

int cache_entry_parse(struct buf *b, struct cache_entry *ret)
{
    struct cache_entry entry = {0};
    struct rest rest = {.len = b->len};
    struct head head;

    rest.at = buf_take(b, NULL);
    entry.files.backing = rest.at;
    const char *from = take(&rest, sizeof(magic) + MAC_SIZE);
    int r = from != NULL && memcmp(from, magic, sizeof(magic)) == 0 ? 0 : -EBADMSG;
    if (r == 0 && (from = take(&rest, sizeof(head))) == NULL)
        r = -EBADMSG;
    if (r == 0) {
        memcpy(&head, from, sizeof(head));
        entry.out = take(&rest, entry.out_len = head.out_len);
        entry.err = take(&rest, entry.err_len = head.err_len);
        if (entry.out == NULL || entry.err == NULL || head.reserved != 0 ||
            head.file_count > FILES_MAX)
            r = -EBADMSG;
    }
    for (uint32_t i = 0; r == 0 && i < head.file_count; i++)
        r = parse_file(&rest, &entry.files);
    if (r == 0 && rest.len != 0)
        r = -EBADMSG;
    if (r < 0) {
        cache_entry_done(&entry);
        return r;
    }
    *ret = entry;
    return 0;
}

int cache_entry_read(struct buf *b, const struct cache_key *key,
    const uint8_t secret[CACHE_SECRET_SIZE], struct cache_entry *ret)
{
    uint8_t mac[MAC_SIZE];
    const size_t body = sizeof(magic) + MAC_SIZE;

    if (b->len < body) {
        buf_clear(b);
        return -EBADMSG;
    }
    make_mac(key, secret, b, body, mac);
    if (!memeql_sec(mac, b->data + sizeof(magic), MAC_SIZE)) {
        buf_clear(b);
        return -EBADMSG;
    }
    return cache_entry_parse(b, ret);
}
