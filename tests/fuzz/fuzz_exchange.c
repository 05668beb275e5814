/* SPDX-License-Identifier: Apache-2.0 */

/* Bytes of a box and of a server, in turn and in pieces. Whatever they are, the box never gets
 * the value, and each request that the server gets has the secret's header once. */

#include "inject/exchange.h"

#include <stdlib.h>
#include <string.h>

#define VALUE "secretsecretsecr"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct exchange_rule rule = {.host = "a.b",
    .port = 443,
    .count = 2,
    .secrets = {{.header = "X-K", .line = "Bearer " VALUE, .value = VALUE},
        {.header = "X-L", .line = "aabaabaaaabaabaa", .value = "aabaabaaaabaabaa"}}};

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool has(const struct buf *b, const char *text)
{
    return b->len && memmem(b->data, b->len, text, strlen(text));
}

/* Lines of a head that begin with this name. */
static unsigned count_header(const char *head, size_t len, const char *name)
{
    unsigned count = 0;
    for (const char *at = head;
         (at = memmem(at, len - (size_t)(at - head), name, strlen(name))); at++)
        count++;
    return count;
}

struct side {
    char bytes[1 << 17];
    size_t len;
};

static void drop(struct side *s, size_t taken)
{
    check(taken <= s->len);
    memmove(s->bytes, s->bytes + taken, s->len - taken);
    s->len -= taken;
}

static void take_request(struct exchange *x, struct side *from, struct buf *to_box)
{
    struct buf to_server;
    size_t taken;
    bool was_head = x->request == PHASE_HEAD;
    buf_init(&to_server, 1 << 20);
    check(exchange_request(x, from->bytes, from->len, &to_server, to_box, &taken) == 0);
    drop(from, taken);
    if (was_head && to_server.len) {
        const char *end = memmem(to_server.data, to_server.len, "\r\n\r\n", 4);
        check(end != NULL);
        size_t len = (size_t)(end - to_server.data) + 2;
        check(count_header(to_server.data, len, "\r\nX-K: Bearer " VALUE "\r\n") == 1);
        check(count_header(to_server.data, len, "\r\nHost: a.b\r\n") == 1);
    }
    buf_done(&to_server);
}

/* Input: pieces, each with a byte in front: whose it is (the highest bit) and its length. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct side box, server;
    struct exchange x;
    struct buf to_box;
    if (size > sizeof(box.bytes))
        return 0;
    box.len = server.len = 0;
    exchange_init(&x, &rule);
    buf_init(&to_box, 8 << 20);
    for (size_t at = 0; at < size && !x.is_over;) {
        bool is_server = data[at] & 0x80;
        size_t n = data[at++] & 0x7f;
        struct side *from = is_server ? &server : &box;
        n = n < size - at ? n : size - at;
        memcpy(from->bytes + from->len, data + at, n);
        from->len += n;
        at += n;
        take_request(&x, &box, &to_box);
        size_t taken = 0;
        check(exchange_answer(&x, server.bytes, server.len, &to_box, &taken) == 0);
        drop(&server, taken);
    }
    check(exchange_answer_end(&x, size % 2, &to_box) == 0);
    check(!has(&to_box, VALUE));
    exchange_done(&x);
    buf_done(&to_box);
    return 0;
}
