/* SPDX-License-Identifier: Apache-2.0 */

/* The server name of a TLS hello. */

#include "egress/hello.h"
#include "test.h"

#include <string.h>

/* The parts of a hello that differ between cases. */
struct recipe {
    const char *name; /* NULL: no such extension */
    bool is_named_twice;
    bool is_encrypted;
    bool has_no_extensions;
    uint8_t name_type;
    size_t padding; /* bytes of an extension for padding */
};

static void put(uint8_t *to, size_t *n, size_t value, size_t bytes)
{
    for (size_t i = bytes; i-- > 0;)
        to[(*n)++] = (uint8_t)(value >> 8 * i);
}

static void put_zeros(uint8_t *to, size_t *n, size_t count)
{
    memset(to + *n, 0, count);
    *n += count;
}

static void put_name(uint8_t *to, size_t *n, const struct recipe *r)
{
    size_t len = strlen(r->name);
    put(to, n, 0, 2);
    put(to, n, len + 5, 2);
    put(to, n, len + 3, 2);
    put(to, n, r->name_type, 1);
    put(to, n, len, 2);
    memcpy(to + *n, r->name, len);
    *n += len;
}

/* Writes a record with a hello; returns its length. */
static size_t put_hello(uint8_t *to, const struct recipe *r)
{
    uint8_t extensions[20000];
    size_t count = 0;
    size_t n = 0;
    put(extensions, &count, 43, 2); /* supported versions */
    put(extensions, &count, 3, 2);
    put(extensions, &count, 0x020304, 3);
    if (r->padding) {
        put(extensions, &count, 21, 2);
        put(extensions, &count, r->padding, 2);
        put_zeros(extensions, &count, r->padding);
    }
    for (int i = 0; r->name && i < (r->is_named_twice ? 2 : 1); i++)
        put_name(extensions, &count, r);
    if (r->is_encrypted) {
        put(extensions, &count, 0xfe0d, 2);
        put(extensions, &count, 1, 2);
        put(extensions, &count, 0, 1);
    }
    size_t body = 34 + 1 + 32 + 2 + 2 + 2 + (r->has_no_extensions ? 0 : 2 + count);
    put(to, &n, 0x160301, 3);
    put(to, &n, body + 4, 2);
    put(to, &n, 1, 1);
    put(to, &n, body, 3);
    put(to, &n, 0x0303, 2);
    put_zeros(to, &n, 32);
    put(to, &n, 32, 1);
    put_zeros(to, &n, 32);
    put(to, &n, 2, 2);
    put(to, &n, 0x1301, 2);
    put(to, &n, 0x0100, 2);
    if (r->has_no_extensions)
        return n;
    put(to, &n, count, 2);
    memcpy(to + n, extensions, count);
    return n + count;
}

static uint8_t bytes[24000];

static void test_named(void **state)
{
    struct hello h;
    (void)state;
    size_t n = put_hello(bytes, &(struct recipe){.name = "API.Example.com", .padding = 500});
    assert_int_equal(hello_read(&h, bytes, n), HELLO_NAMED);
    assert_string_equal(h.name, "api.example.com");
    assert_false(h.is_encrypted);
    /* bytes behind the record do not matter */
    assert_int_equal(hello_read(&h, bytes, n + 100), HELLO_NAMED);
    n = put_hello(bytes, &(struct recipe){.name = "outer.example", .is_encrypted = true});
    assert_int_equal(hello_read(&h, bytes, n), HELLO_NAMED);
    assert_true(h.is_encrypted);
    assert_string_equal(h.name, "outer.example");
}

static void test_pieces(void **state)
{
    struct hello h;
    (void)state;
    size_t n = put_hello(bytes, &(struct recipe){.name = "a.example"});
    for (size_t len = 0; len < n; len++) {
        assert_int_equal(hello_read(&h, bytes, len), HELLO_MORE);
        assert_int_equal(h.need, len < 5 ? 5 : n);
    }
    n = put_hello(bytes, &(struct recipe){.name = "a.example", .padding = 16000});
    assert_int_equal(hello_read(&h, bytes, n), HELLO_NAMED);
    assert_true(n <= HELLO_MAX);
}

static void test_without_name(void **state)
{
    struct hello h;
    (void)state;
    size_t n = put_hello(bytes, &(struct recipe){.padding = 1});
    assert_int_equal(hello_read(&h, bytes, n), HELLO_NAMELESS);
    n = put_hello(bytes, &(struct recipe){.has_no_extensions = true});
    assert_int_equal(hello_read(&h, bytes, n), HELLO_NAMELESS);
    assert_int_equal(hello_read(&h, (const uint8_t *)"GET / HTTP/1.1\r\n", 16), HELLO_NOT_TLS);
    assert_int_equal(hello_read(&h, (const uint8_t *)"SSH-2.0-x\r\n", 11), HELLO_NOT_TLS);
}

/* A warning before the hello: Go passes over it and reads the hello behind. */
static void test_record_before(void **state)
{
    static const uint8_t types[] = {20, 21, 23, 24};
    struct hello h;
    (void)state;
    for (size_t i = 0; i < sizeof(types); i++) {
        uint8_t record[] = {types[i], 3, 1, 0, 2, 1, 90};
        for (size_t len = 2; len <= sizeof(record); len++)
            assert_int_equal(hello_read(&h, record, len), HELLO_UNREADABLE);
        assert_int_equal(hello_read(&h, record, 1), HELLO_MORE);
        record[1] = 'x'; /* the control: a protocol that only begins with that byte */
        assert_int_equal(hello_read(&h, record, 2), HELLO_NOT_TLS);
    }
}

static void test_unreadable_names(void **state)
{
    static const struct recipe cases[] = {
        {.name = ""},
        {.name = "a b"},
        {.name = "a/b"},
        {.name = "b\xc3\xbc"
                 "cher"},
        {.name = "a.example", .is_named_twice = true},
        {.name = "a.example", .name_type = 1},
    };
    struct hello h;
    char name[300];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = put_hello(bytes, &cases[i]);
        if (hello_read(&h, bytes, n) != HELLO_UNREADABLE || h.name[0])
            fail_msg("case %zu", i);
    }
    memset(name, 'a', sizeof(name));
    name[253] = '\0';
    size_t n = put_hello(bytes, &(struct recipe){.name = name});
    assert_int_equal(hello_read(&h, bytes, n), HELLO_NAMED);
    name[253] = 'a';
    name[254] = '\0';
    n = put_hello(bytes, &(struct recipe){.name = name});
    assert_int_equal(hello_read(&h, bytes, n), HELLO_UNREADABLE);
}

/* A hello that does not fill its record, or goes on in the next one. */
static void test_split(void **state)
{
    struct hello h;
    (void)state;
    size_t n = put_hello(bytes, &(struct recipe){.name = "a.example"});
    bytes[8]++;
    assert_int_equal(hello_read(&h, bytes, n), HELLO_UNREADABLE);
    bytes[8]--;
    bytes[4]--;
    assert_int_equal(hello_read(&h, bytes, n), HELLO_UNREADABLE);
    bytes[4]++;
    bytes[5] = 2; /* a server's hello */
    assert_int_equal(hello_read(&h, bytes, n), HELLO_UNREADABLE);
    bytes[5] = 1;
    bytes[1] = 2;
    assert_int_equal(hello_read(&h, bytes, n), HELLO_UNREADABLE);
    bytes[1] = 3;
    bytes[3] = 0x40;
    bytes[4] = 1; /* longer than a record may be */
    assert_int_equal(hello_read(&h, bytes, 5), HELLO_UNREADABLE);
    /* no length field may lead out of its field */
    n = put_hello(bytes, &(struct recipe){.name = "a.example"});
    for (size_t i = 9; i < n; i++) {
        uint8_t was = bytes[i];
        bytes[i] = 0xff;
        (void)hello_read(&h, bytes, n);
        bytes[i] = was;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_without_name),
        cmocka_unit_test(test_record_before),
        cmocka_unit_test(test_unreadable_names),
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
