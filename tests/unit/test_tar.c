/* SPDX-License-Identifier: Apache-2.0 */

/* Tar files: paths, the writer's bytes, and the reader on what the writer wrote. */

#include "base/buf.h"
#include "base/str.h"
#include "layer/tar_read.h"
#include "layer/tar_write.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int write_buf(void *context, const void *data, size_t len)
{
    return buf_append(context, data, len);
}

struct memory {
    const char *data;
    size_t left, step; /* step: bytes that one call gives at most */
};

static ssize_t read_memory(void *context, void *data, size_t len)
{
    struct memory *m = context;
    size_t n = m->left < len ? m->left : len;
    n = n < m->step ? n : m->step;
    memcpy(data, m->data, n);
    m->data += n;
    m->left -= n;
    return (ssize_t)n;
}

static void paths_are_cleaned(void **state)
{
    static const char *const rows[][2] = {
        {"a", "a"},
        {"./a//b/", "a/b"},
        {"/a", "a"},
        {"///", ""},
        {"", ""},
        {".", ""},
        {"./.", ""},
        {"...", "..."},
        {"a/./b", "a/b"},
        {"..a/b..", "..a/b.."},
    };
    char out[LAYER_PATH_MAX + 1];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_null(tar_clean_path(rows[i][0], out));
        assert_string_equal(out, rows[i][1]);
    }
}

static void paths_that_lead_out_are_refused(void **state)
{
    static const char *const rows[] = {"..", "../a", "a/..", "/..", "a/../b", "./../a"};
    char out[LAYER_PATH_MAX + 1];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        assert_non_null(tar_clean_path(rows[i], out));
}

static void a_path_may_be_cleaned_in_place(void **state)
{
    char path[LAYER_PATH_MAX + 1] = ".//a/./b//c/";
    assert_null(tar_clean_path(path, path));
    assert_string_equal(path, "a/b/c");
}

static void messages_have_printable_bytes_only(void **state)
{
    char out[256], path[2000];
    assert_string_equal(layer_show("a b/\n\x1b\xff\\", out), "a b/\\x0a\\x1b\\xff\\x5c");
    memset(path, '\n', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    size_t len = strlen(layer_show(path, out));
    assert_true(len < sizeof(out) && len > 200);
    assert_true(str_has_suffix(out, "..."));
}

static void short_names_need_one_header(void **state)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    struct tar_writer w = {.write = write_buf, .context = &out};
    assert_int_equal(tar_put_header(&w, TAR_DIRECTORY, "d/", NULL, 0, 0755), 0);
    assert_int_equal(out.len, TAR_BLOCK);
    assert_int_equal(tar_put_file(&w, "d/f", "12345", 5), 0);
    assert_int_equal(out.len, 3 * TAR_BLOCK);
    assert_memory_equal(out.data + TAR_BLOCK + 124, "00000000005", 12);
    assert_memory_equal(out.data + TAR_BLOCK + 136, "02263523000", 12); /* 1980 */
    assert_memory_equal(out.data + TAR_BLOCK + 257,
        "ustar\0"
        "00",
        8);
    assert_int_equal(tar_put_end(&w), 0);
    assert_int_equal(out.len, 5 * TAR_BLOCK);
    buf_done(&out);
}

/* Writes one entry, reads it back in steps of every size. */
static void check_entry(enum tar_type type, const char *path, const char *link, uint64_t size)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    struct tar_writer w = {.write = write_buf, .context = &out};
    assert_int_equal(tar_put_header(&w, type, path, link, size, 0755), 0);
    for (size_t step = 1; step < 2000; step += 333) {
        struct memory m = {.data = out.data, .left = out.len, .step = step};
        struct tar_reader *r = calloc(1, sizeof(*r));
        struct err err = {0};
        r->read = read_memory;
        r->context = &m;
        assert_int_equal(tar_next(r, &err), 1);
        assert_int_equal(r->entry.type, type);
        assert_string_equal(r->entry.path, path);
        assert_string_equal(r->entry.link, link ? link : "");
        assert_true(r->entry.size == size);
        free(r);
    }
    buf_done(&out);
}

static void what_is_written_is_read(void **state)
{
    char longest[LAYER_PATH_MAX + 1], name[TAR_NAME + 2];
    for (size_t len = TAR_NAME - 1; len <= TAR_NAME + 1; len++) {
        memset(name, 'n', len);
        name[len] = '\0';
        check_entry(TAR_FILE, name, NULL, 0);
        check_entry(TAR_SYMLINK, "l", name, 0);
    }
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    check_entry(TAR_DIRECTORY, longest, NULL, 0);
    check_entry(TAR_SYMLINK, longest, longest, 0);
    check_entry(TAR_FILE, "f", NULL, (UINT64_C(1) << 33) - 1);
    check_entry(TAR_FILE, "f", NULL, UINT64_C(1) << 33);
    check_entry(TAR_FILE, "f", NULL, INT64_MAX);
    check_entry(TAR_HARD_LINK, "h", "f", 0);
}

static void record_lengths_count_themselves(void **state)
{
    char path[1100];
    for (size_t len = TAR_NAME + 1; len < sizeof(path) - 1; len++) {
        memset(path, 'p', len);
        path[len] = '\0';
        if (len < 110 || (len > 980 && len < 1005))
            check_entry(TAR_FILE, path, NULL, 0);
    }
}

static void content_that_is_not_read_is_skipped(void **state)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    struct tar_writer w = {.write = write_buf, .context = &out};
    (void)tar_put_file(&w, "a", "0123456789", 10);
    (void)tar_put_file(&w, "b", "abc", 3);
    (void)tar_put_end(&w);
    struct memory m = {.data = out.data, .left = out.len, .step = 100};
    struct tar_reader *r = calloc(1, sizeof(*r));
    struct err err = {0};
    char text[16];
    r->read = read_memory;
    r->context = &m;
    assert_int_equal(tar_next(r, &err), 1);
    assert_int_equal(tar_read_data(r, text, 4, &err), 4);
    assert_int_equal(tar_next(r, &err), 1);
    assert_int_equal(tar_read_data(r, text, sizeof(text), &err), 3);
    assert_memory_equal(text, "abc", 3);
    assert_int_equal(tar_read_data(r, text, sizeof(text), &err), 0);
    assert_int_equal(tar_next(r, &err), 0);
    assert_int_equal(tar_drain(r, &err), 0);
    assert_int_equal(m.left, 0);
    free(r);
    buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_cleaned),
        cmocka_unit_test(paths_that_lead_out_are_refused),
        cmocka_unit_test(a_path_may_be_cleaned_in_place),
        cmocka_unit_test(messages_have_printable_bytes_only),
        cmocka_unit_test(short_names_need_one_header),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(record_lengths_count_themselves),
        cmocka_unit_test(content_that_is_not_read_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
