/* SPDX-License-Identifier: Apache-2.0 */

/* Everything in str.h that reads a stranger's text. The input is two strings, split at the
 * first NUL: a value or pattern, and a path. What must hold is checked by abort(). */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* A value is set on success only, and failure has one of two names. */
static void check_number(int r, uint64_t value, uint64_t before)
{
    check(r == 0 || ((r == -EINVAL || r == -ERANGE) && value == before));
}

static void check_parsers(const char *s)
{
    const uint64_t before = 0x5a5a5a5a5a5a5a5a;
    uint64_t u64 = before;
    uint64_t size = before;
    uint64_t ms = before;
    uint32_t u32 = (uint32_t)before;
    int64_t i64 = (int64_t)before;

    check_number(str_parse_u64(s, &u64), u64, before);
    check_number(str_parse_size(s, &size), size, before);
    check_number(str_parse_duration_ms(s, &ms), ms, before);
    check_number(str_parse_u32(s, &u32), u32, (uint32_t)before);
    check_number(str_parse_i64(s, &i64), (uint64_t)i64, before);
    /* A whole number is a size in bytes. */
    if (u64 != before)
        check(size == u64);
}

static void check_name(const char *name, size_t len)
{
    if (str_name_problem(name, len))
        return;
    check(len > 0 && len <= 4096 && name[0] != '/' && name[len - 1] != '/');
    check(!memchr(name, '\0', len) && utf8_valid(name, len));
    cleanup_free char *s = xstrndup(name, len);
    check(!strstr(s, "//") && !strstr(s, "/../") && !str_eq(s, ".."));
    check(!str_has_prefix(s, "../") && !str_has_suffix(s, "/.."));
}

static void check_glob(const char *pattern, const char *path)
{
    (void)str_glob_match(pattern, path);
    if (strlen(path) > STR_GLOB_MAX / 2)
        return;
    check(str_glob_match("**", path));
    if (!utf8_valid(path, strlen(path)))
        return;

    /* With every character quoted a path matches itself. */
    cleanup_free char *quoted = xmalloc(strlen(path) * 2 + 1);
    char *out = quoted;
    for (const char *p = path; *p; p++) {
        if (((unsigned char)*p & 0xc0) != 0x80)
            *out++ = '\\';
        *out++ = *p;
    }
    *out = '\0';
    check(str_glob_match(quoted, path));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t first_len = strnlen((const char *)data, size);
    cleanup_free char *first = xstrndup((const char *)data, first_len);
    size_t rest = first_len < size ? first_len + 1 : size;
    cleanup_free char *second = xstrndup((const char *)data + rest, size - rest);

    check_parsers(first);
    check_name((const char *)data, size);
    check_name(first, first_len);
    check_glob(first, second);
    return 0;
}
