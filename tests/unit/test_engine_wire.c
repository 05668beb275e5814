/* SPDX-License-Identifier: Apache-2.0 */

/* Answers of an engine of containers, and the frames of a program's output. */

#include "backend/wire.h"
#include "test.h"

#include <errno.h>
#include <string.h>

static ssize_t parse(const char *text, struct wire_head *head)
{
    return wire_head_parse(text, strlen(text), head);
}

static void heads(void **state)
{
    static const char *const wrong[] = {"HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 999 OK\r\n\r\n", "HTTP/1.1 200 OK\n\n", "\r\n", "x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", "HTTP/1.1 200 OK\r\nName : x\r\n\r\n"};
    struct wire_head head;
    const char *text =
        "HTTP/1.1 201 Created\r\ncontent-length:  12 \r\nLibpod-API-Version: 4\r\n\r\n{";
    assert_int_equal(parse(text, &head), (ssize_t)strlen(text) - 1);
    assert_true(head.status == 201 && head.has_length && head.length == 12 && head.is_podman);
    assert_int_equal(wire_head_parse(text, strlen(text) - 2, &head), 0);
    assert_true(parse("HTTP/1.1 101\r\nTransfer-Encoding: Chunked\r\n\r\n", &head) > 0);
    assert_true(head.is_chunked && !head.is_podman);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(parse(wrong[i], &head), -EPROTO);
}

static void chunks(void **state)
{
    char text[] = "5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nA: b\r\n\r\n";
    struct wire_chunks c = {0};
    assert_int_equal(wire_chunks_take(&c, text, strlen(text)), 15);
    assert_memory_equal(text, "hello0123456789", 15);
    assert_int_equal(c.state, CHUNK_DONE);
    for (const char *at = "\r\n\0-1\r\n\0fffffffff\r\n\0"
                          "1\r\nxx\0";
         *at; at += strlen(at) + 1) {
        char wrong[32];
        struct wire_chunks other = {0};
        strcpy(wrong, at);
        assert_int_equal(wire_chunks_take(&other, wrong, strlen(wrong)), -EPROTO);
    }
}

static void frames(void **state)
{
    char bytes[] = "\1\0\0\0\0\0\0\3out\2\0\0\0\0\0\0\4said\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\1!";
    char said[64];
    size_t said_len;
    struct wire_frames f = {0};
    assert_int_equal(wire_frames_take(&f, bytes, sizeof(bytes) - 1, said, &said_len), 4);
    assert_memory_equal(bytes, "out!", 4);
    assert_true(said_len == 4 && memcmp(said, "said", 4) == 0);
    char wrong[] = "\3\0\0\0\0\0\0\1x";
    f = (struct wire_frames){0};
    assert_int_equal(wire_frames_take(&f, wrong, sizeof(wrong) - 1, said, &said_len), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads), cmocka_unit_test(chunks), cmocka_unit_test(frames)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
