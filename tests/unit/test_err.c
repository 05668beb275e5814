/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about struct err: the table is complete and agrees with docs/api.md, messages are one
 * line of valid UTF-8 whatever a stranger's name contains. */

#include "test.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

static void table_has_the_codes_of_the_api(void **state)
{
    static const struct {
        enum err_code code;
        const char *name;
        int http_status;
        int exit_status;
    } rows[] = {
        {ERR_NONE, "ok", 200, 0},
        {ERR_INVALID, "invalid_request", 400, 2},
        {ERR_UNAUTHORIZED, "unauthorized", 401, 2},
        {ERR_FORBIDDEN, "forbidden", 403, 2},
        {ERR_DENIED, "approval_denied", 403, 2},
        {ERR_APPROVAL_UNAVAILABLE, "approval_unavailable", 403, 2},
        {ERR_NOT_FOUND, "not_found", 404, 2},
        {ERR_METHOD, "method_not_allowed", 405, 2},
        {ERR_CONFLICT, "conflict", 409, 2},
        {ERR_TOO_LARGE, "too_large", 413, 2},
        {ERR_URI_TOO_LONG, "uri_too_long", 414, 2},
        {ERR_MEDIA_TYPE, "unsupported_media_type", 415, 2},
        {ERR_MISDIRECTED, "misdirected", 421, 2},
        {ERR_UPGRADE, "upgrade_required", 426, 2},
        {ERR_BUILD_FAILED, "build_failed", 422, 2},
        {ERR_LIMIT, "unsupported_limit", 422, 2},
        {ERR_HEADERS_TOO_LARGE, "headers_too_large", 431, 2},
        {ERR_BUSY, "busy", 429, 125},
        {ERR_INTERNAL, "internal_error", 500, 125},
        {ERR_UNSUPPORTED, "unsupported", 501, 125},
        {ERR_VERSION, "version_not_supported", 505, 2},
        {ERR_BACKEND, "backend_failed", 502, 125},
        {ERR_UNAVAILABLE, "unavailable", 503, 125},
        {ERR_NO_SPACE, "no_space", 507, 125},
    };

    assert_int_equal(sizeof(rows) / sizeof(rows[0]), ERR_CODE_COUNT);
    for (size_t i = 0; i < ERR_CODE_COUNT; i++) {
        const struct err_info *info = &err_table[rows[i].code];
        assert_string_equal(info->name, rows[i].name);
        assert_int_equal(info->http_status, rows[i].http_status);
        assert_int_equal(info->exit_status, rows[i].exit_status);
        assert_true(strlen(info->text) > 10);
    }
}

static void set_fills_in_and_returns_the_errno(void **state)
{
    struct err err = {.field = "old"};

    assert_int_equal(err_set(&err, ERR_NOT_FOUND, ENOENT, "no %s", "file"), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(err.errnum, ENOENT);
    assert_string_equal(err.message, "no file");
    assert_string_equal(err.field, "");
    assert_int_equal(err_set(&err, ERR_CONFLICT, 0, "x"), -EINVAL);
    assert_int_equal(err.errnum, 0);
    assert_int_equal(err_set(&err, ERR_CONFLICT, -EBUSY, "x"), -EBUSY);
    assert_int_equal(err.errnum, EBUSY);
}

static void null_is_accepted_everywhere(void **state)
{
    assert_int_equal(err_set(NULL, ERR_BUSY, EAGAIN, "x"), -EAGAIN);
    assert_int_equal(err_field(NULL, "f", "x"), -EINVAL);
    assert_int_equal(err_wrap(NULL, -EIO, "x"), -EIO);
}

static void field_names_the_part_at_fault(void **state)
{
    struct err err = {0};

    assert_int_equal(err_field(&err, "limits.wall_ms", "must be > %d", 0), -EINVAL);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.field, "limits.wall_ms");
    assert_string_equal(err.message, "must be > 0");
}

static void wrap_prefixes_the_context(void **state)
{
    struct err err = {0};

    (void)err_set(&err, ERR_NO_SPACE, ENOSPC, "disk full");
    assert_int_equal(err_wrap(&err, -ENOSPC, "file %d", 3), -ENOSPC);
    assert_string_equal(err.message, "file 3: disk full");
    assert_int_equal(err.code, ERR_NO_SPACE);
}

static void wrap_of_an_empty_err_does_not_look_like_success(void **state)
{
    struct err err = {0};

    assert_int_equal(err_wrap(&err, -ENOENT, "cannot open x"), -ENOENT);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_int_equal(err.errnum, ENOENT);
    assert_string_equal(err.message, "cannot open x: No such file or directory");
}

static void message_may_be_its_own_argument(void **state)
{
    struct err err = {0};

    (void)err_set(&err, ERR_BUSY, 0, "inner");
    (void)err_set(&err, ERR_BUSY, 0, "<%s>", err.message);
    assert_string_equal(err.message, "<inner>");
    (void)err_field(&err, "a.b", "x");
    (void)err_field(&err, err.field, "y");
    assert_string_equal(err.field, "a.b");
}

static void message_is_one_printable_line(void **state)
{
    struct err err = {0};

    (void)err_set(&err, ERR_INVALID, 0, "a\nb\tc\rd\x1b[31m\x7f\xff\xc2\x9bz\xc3\xa9");
    assert_string_equal(err.message, "a b c?d?[31m???z\xc3\xa9");
}

static void long_message_is_cut_between_code_points(void **state)
{
    struct err err = {0};
    char text[2000];

    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        (void)err_set(&err, ERR_INVALID, 0, "%s", text);
        size_t len = strlen(err.message);
        assert_true(len < sizeof(err.message) && len >= sizeof(err.message) - 4);
        assert_true(utf8_valid(err.message, len));
        assert_null(strchr(err.message, '?'));
        (void)err_wrap(&err, -1, "%s", text);
        assert_true(utf8_valid(err.message, strlen(err.message)));
        (void)err_field(&err, text, "x");
        assert_true(utf8_valid(err.field, strlen(err.field)));
    }
}

static void what_passes_is_not_our_fault(void **state)
{
    assert_int_equal(err_code_of(EMFILE), ERR_UNAVAILABLE);
    assert_int_equal(err_code_of(ETOOMANYREFS), ERR_UNAVAILABLE);
    assert_int_equal(err_code_of(EAGAIN), ERR_UNAVAILABLE);
    assert_int_equal(err_code_of(ENOMEM), ERR_UNAVAILABLE);
    assert_int_equal(err_code_of(EPERM), ERR_INTERNAL);
    assert_int_equal(err_code_of(0), ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_has_the_codes_of_the_api),
        cmocka_unit_test(set_fills_in_and_returns_the_errno),
        cmocka_unit_test(null_is_accepted_everywhere),
        cmocka_unit_test(field_names_the_part_at_fault),
        cmocka_unit_test(wrap_prefixes_the_context),
        cmocka_unit_test(wrap_of_an_empty_err_does_not_look_like_success),
        cmocka_unit_test(message_may_be_its_own_argument),
        cmocka_unit_test(message_is_one_printable_line),
        cmocka_unit_test(long_message_is_cut_between_code_points),
        cmocka_unit_test(what_passes_is_not_our_fault),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
