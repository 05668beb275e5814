/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about UTF-8. What Python's errors="replace" does is taken from Python itself:
 * utf8_agrees_with_python hands it thousands of hostile inputs and compares. */

#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/utf8.h"

#define FFFD "\xef\xbf\xbd"

static const struct {
    const char *in;
    const char *out;
} repairs[] = {
    {"", ""},
    {"plain", "plain"},
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"\x80", FFFD},
    {"\xff\xfe", FFFD FFFD},
    {"\xc0\xaf", FFFD FFFD},                   /* overlong '/' */
    {"\xe0\x80\xaf", FFFD FFFD FFFD},          /* overlong */
    {"\xed\xa0\x80", FFFD FFFD FFFD},          /* surrogate */
    {"\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD}, /* past U+10FFFF */
    {"\xf0\x80\x80\xaf", FFFD FFFD FFFD FFFD}, /* overlong */
    {"\xf5\x80", FFFD FFFD},                   /* no such first byte */
    {"\xe2\x82", FFFD},                        /* cut short at the end */
    {"\xf0\x9f\x98", FFFD},                    /* the same */
    {"\xf0\x9f\x98z", FFFD "z"},               /* and in the middle */
    {"x\xe2\x82y\xe2z", "x" FFFD "y" FFFD "z"},
    {"\xe2\x82\xe2\x82\xac", FFFD "\xe2\x82\xac"},
    {"\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"},
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    {"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", /* table 3-8 of the standard */
        "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d"},
};

static void repair_replaces_each_maximal_subpart(void **state)
{
    for (size_t i = 0; i < sizeof(repairs) / sizeof(repairs[0]); i++) {
        size_t len = 0;
        size_t in_len = strlen(repairs[i].in);
        cleanup_free char *out = utf8_repair(repairs[i].in, in_len, &len);

        assert_string_equal(out, repairs[i].out);
        assert_int_equal(len, strlen(out));
        assert_int_equal(
            utf8_valid(repairs[i].in, in_len), strcmp(repairs[i].in, repairs[i].out) == 0);
    }
}

static void repair_keeps_nul_bytes(void **state)
{
    size_t len = 0;
    cleanup_free char *out = utf8_repair("a\0\xff\0b", 5, &len);

    assert_int_equal(len, 7);
    assert_memory_equal(out, "a\0" FFFD "\0b", 8);
    assert_true(utf8_valid("a\0b", 3));
}

static void bytes_past_the_length_are_not_read(void **state)
{
    /* Exactly as long as it says, so that the address sanitizer would see one byte more. */
    for (size_t len = 1; len <= 4; len++) {
        cleanup_free char *s = malloc(len);
        memcpy(s, "\xf0\x9f\x98\x80", len);
        size_t out_len;
        cleanup_free char *out = utf8_repair(s, len, &out_len);
        assert_string_equal(out, len < 4 ? FFFD : "\xf0\x9f\x98\x80");
        assert_int_equal(utf8_floor(s, len), len < 4 ? 0 : 4);
        assert_int_equal(utf8_valid(s, len), len == 4);
    }
}

static void next_decodes_every_code_point(void **state)
{
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char s[4];
        size_t len;
        uint32_t found;

        if (code < 0x80) {
            s[0] = (char)code;
            len = 1;
        } else if (code < 0x800) {
            s[0] = (char)(0xc0 | code >> 6);
            len = 2;
        } else if (code < 0x10000) {
            s[0] = (char)(0xe0 | code >> 12);
            len = 3;
        } else {
            s[0] = (char)(0xf0 | code >> 18);
            len = 4;
        }
        for (size_t i = 1; i < len; i++)
            s[i] = (char)(0x80 | (code >> (6 * (len - 1 - i)) & 0x3f));
        size_t taken = utf8_next(s, len, &found);
        bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
        if (taken != (is_surrogate ? 1 : len) || found != (is_surrogate ? UTF8_INVALID : code))
            fail_msg("U+%04X: %zu bytes, U+%04X", code, taken, found);
    }
}

static void floor_cuts_only_what_could_be_completed(void **state)
{
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
    static const size_t floors[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};

    for (size_t len = 0; len <= 10; len++)
        assert_int_equal(utf8_floor(text, len), floors[len]);
    assert_int_equal(utf8_floor("\x80\x80\x80\x80\x80", 5), 5);
    assert_int_equal(utf8_floor("ab\xff", 3), 3);
    assert_int_equal(utf8_floor("\xe0\x80", 2), 2);
    assert_int_equal(utf8_floor("\xc3\xa9\x80", 3), 3);
}

/* Inputs that are mostly nearly right: random bytes would rarely get past the first one. */
static size_t make_hostile(uint64_t *seed, char *out, size_t max)
{
    static const char bytes[] =
        "a\0\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed"
        "\xee\xef\xf0\xf1\xf3\xf4\xf5\xff";
    size_t len = test_random(seed) % (max + 1);

    for (size_t i = 0; i < len; i++) {
        out[i] = test_random(seed) % 4 == 0 ? (char)test_random(seed)
                                            : bytes[test_random(seed) % (sizeof(bytes) - 1)];
    }
    return len;
}

/* Writes pairs of length and bytes: input, then what utf8_repair made of it. */
static void write_record(FILE *f, const char *s, size_t len)
{
    uint32_t size = (uint32_t)len;
    assert_int_equal(fwrite(&size, sizeof(size), 1, f), 1);
    assert_int_equal(fwrite(s, 1, len, f), len);
}

static const char python_check[] =
    "import struct, sys\n"
    "data = open(sys.argv[1], 'rb').read()\n"
    "at = count = 0\n"
    "def record():\n"
    "    global at\n"
    "    size, = struct.unpack_from('=I', data, at)\n"
    "    at += 4 + size\n"
    "    return data[at - size:at]\n"
    "while at < len(data):\n"
    "    given, repaired, is_valid = record(), record(), record()\n"
    "    wanted = given.decode('utf-8', 'replace').encode()\n"
    "    if repaired != wanted: sys.exit(f'{given!r}: {repaired!r}, not {wanted!r}')\n"
    "    try: is_right = (given.decode() is not None) == (is_valid == b'1')\n"
    "    except UnicodeDecodeError: is_right = is_valid == b'0'\n"
    "    if not is_right: sys.exit(f'{given!r}: valid is {is_valid!r}')\n"
    "    count += 1\n"
    "sys.exit(0 if count == int(sys.argv[2]) else 'too few records')\n";

static void utf8_agrees_with_python(void **state)
{
    enum { COUNT = 20000 };
    char path[] = "/tmp/hermes-utf8-XXXXXX";
    uint64_t seed = 1;
    cleanup_close int fd = mkstemp(path);

    if (access("/usr/bin/python3", X_OK) < 0) {
        (void)unlink(path);
        test_skip("there is no python3");
    }
    assert_true(fd >= 0);
    FILE *f = fdopen(dup(fd), "wb");
    assert_non_null(f);
    for (int i = 0; i < COUNT; i++) {
        char in[40];
        size_t len = make_hostile(&seed, in, sizeof(in));
        size_t out_len;
        cleanup_free char *out = utf8_repair(in, len, &out_len);

        assert_true(utf8_valid(out, out_len));
        assert_true(utf8_floor(in, len) <= len && len - utf8_floor(in, len) < 4);
        write_record(f, in, len);
        write_record(f, out, out_len);
        write_record(f, utf8_valid(in, len) ? "1" : "0", 1);
    }
    assert_int_equal(fclose(f), 0);

    pid_t pid = fork();
    if (pid == 0) {
        (void)execl(
            "/usr/bin/python3", "python3", "-I", "-c", python_check, path, "20000", NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)unlink(path);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repair_replaces_each_maximal_subpart),
        cmocka_unit_test(repair_keeps_nul_bytes),
        cmocka_unit_test(bytes_past_the_length_are_not_read),
        cmocka_unit_test(next_decodes_every_code_point),
        cmocka_unit_test(floor_cuts_only_what_could_be_completed),
        cmocka_unit_test(utf8_agrees_with_python),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
