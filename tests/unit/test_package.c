/* SPDX-License-Identifier: Apache-2.0 */

/* A package as run/package.c writes it is what box/package_read.c reads, and the collector's
 * records are believed in nothing. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "box/package_read.h"
#include "proto/package.h"
#include "run/package.h"

static char *copy(const char *text)
{
    return xstrdup(text);
}

struct fixture {
    struct strv argv, env, globs;
    struct run_files files, artefacts;
};

static void fill(struct fixture *f)
{
    *f = (struct fixture){0};
    strv_add(&f->argv, "/usr/bin/python3");
    strv_add(&f->argv, "main.py");
    strv_add(&f->env, "A=1");
    strv_add(&f->globs, "*.txt");
    run_files_add(&f->files, "main.py", copy("print(1)"), 8, false);
    run_files_add(&f->files, "dir/data", copy("x"), 1, true);
    run_files_add(&f->artefacts, "dir/data", copy("newer"), 5, false);
    run_files_add(&f->artefacts, "program", copy("ELF"), 3, false);
}

static void done(struct fixture *f)
{
    strv_done(&f->argv);
    strv_done(&f->env);
    strv_done(&f->globs);
    run_files_done(&f->files);
    run_files_done(&f->artefacts);
}

static struct package_spec spec_of(const struct fixture *f)
{
    return (struct package_spec){.argv = &f->argv,
        .env = &f->env,
        .globs = &f->globs,
        .files = {&f->files, &f->artefacts},
        .collect_max_files = 7,
        .collect_max_bytes = 1000,
        .program = "program"};
}

static void what_is_written_is_read(void **state)
{
    struct fixture f;
    struct package package;
    struct err err = {0};
    fill(&f);
    struct package_spec spec = spec_of(&f);
    cleanup_close int fd = -1;
    assert_int_equal(package_write(&spec, &fd, &err), 0);
    assert_int_equal(package_open(fd, &package), 0);
    assert_int_equal(package.head.argc, 2);
    assert_int_equal(package.head.filec, 3);
    size_t at = 0;
    assert_string_equal(package_string(&package, &at), "/usr/bin/python3");
    assert_string_equal(package_string(&package, &at), "main.py");
    assert_string_equal(package_string(&package, &at), "A=1");
    assert_string_equal(package_string(&package, &at), "*.txt");
    assert_null(package_string(&package, &at));

    static const struct {
        const char *name, *content;
        bool executable;
    } want[] = {
        {"main.py", "print(1)", false}, {"dir/data", "newer", false}, {"main", "ELF", true}};
    at = package.files_at;
    for (size_t i = 0; i < 3; i++) {
        struct package_file file;
        const char *name;
        const void *content;
        assert_int_equal(package_next_file(&package, &at, &file, &name, &content), 1);
        assert_string_equal(name, want[i].name);
        assert_int_equal(file.size, strlen(want[i].content));
        assert_memory_equal(content, want[i].content, file.size);
        assert_int_equal(file.executable, want[i].executable);
    }
    done(&f);
}

static void a_job_is_sealed(void **state)
{
    struct fixture f;
    struct err err = {0};
    fill(&f);
    struct package_spec spec = spec_of(&f);
    cleanup_close int fd = -1;
    assert_int_equal(package_write(&spec, &fd, &err), 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
    done(&f);
}

static void an_unsealed_job_is_refused(void **state)
{
    struct package package;
    cleanup_close int fd = memfd_create("package", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(package_open(fd, &package), -EBADMSG);
}

/* Every single-byte change and every truncation ends in an error or in something well-formed.
 */
static void damaged_jobs_do_no_harm(void **state)
{
    struct fixture f;
    struct err err = {0};
    fill(&f);
    struct package_spec spec = spec_of(&f);
    cleanup_close int fd = -1;
    char bytes[1024];
    assert_int_equal(package_write(&spec, &fd, &err), 0);
    ssize_t size = pread(fd, bytes, sizeof(bytes), 0);
    assert_true(size > 0 && size < 1024);
    for (ssize_t i = 0; i < size * 4; i++) {
        size_t len = (size_t)(i < size ? i : size);
        cleanup_free char *damaged = xmalloc(len + 1);
        memcpy(damaged, bytes, len);
        if (i >= size)
            damaged[i % size] ^= (char)(1 << (i / size));
        struct package package;
        if (package_parse(damaged, len, &package) < 0)
            continue;
        size_t at = 0;
        while (package_string(&package, &at))
            ;
        at = package.files_at;
        struct package_file file;
        const char *name;
        const void *content;
        while (package_next_file(&package, &at, &file, &name, &content) == 1)
            assert_true((const char *)content + file.size <= damaged + len);
    }
    done(&f);
}

static void feed_record(struct collect_reader *r, uint32_t kind, const char *name,
    uint64_t size, const char *content, int want)
{
    struct collect_record record = {
        .kind = kind, .name_len = (uint32_t)strlen(name), .size = size};
    assert_int_equal(collect_reader_feed(r, (char *)&record, sizeof(record)), want);
    if (want < 0)
        return;
    assert_int_equal(collect_reader_feed(r, name, strlen(name)), 0);
    if (content)
        assert_int_equal(collect_reader_feed(r, content, size), 0);
}

static void collected_files_arrive_in_any_pieces(void **state)
{
    struct collect_reader r;
    collect_reader_init(&r, 10, 100);
    feed_record(&r, COLLECT_FILE, "a/b.txt", 5, "hello", 0);
    feed_record(&r, COLLECT_NOT_REGULAR, "link", 0, NULL, 0);
    feed_record(&r, COLLECT_TOO_LARGE, "big", 1ull << 50, NULL, 0);
    assert_int_equal(r.files.count, 3);
    assert_string_equal(r.files.items[0].name, "a/b.txt");
    assert_string_equal(r.files.items[0].content, "hello");
    assert_string_equal(r.files.items[1].error, "not_regular");
    assert_string_equal(r.files.items[2].error, "too_large");
    struct collect_record end = {.kind = COLLECT_END, .error = -E2BIG};
    assert_false(r.ended);
    assert_int_equal(collect_reader_feed(&r, (char *)&end, sizeof(end)), 0);
    assert_true(r.ended && r.cut);
    collect_reader_done(&r);
}

static void a_lying_collector_is_cut_off(void **state)
{
    static const struct {
        uint32_t kind;
        uint32_t name_len;
        uint64_t size;
    } lies[] = {
        {COLLECT_FILE, 5, 101},        /* more bytes than allowed */
        {COLLECT_FILE, 5, UINT64_MAX}, /* an overflow */
        {COLLECT_FILE, UINT32_MAX, 1}, /* an endless name */
        {COLLECT_FILE, 0, 1},          /* no name */
        {0, 1, 1},
        {99, 1, 1},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct collect_reader r;
        struct collect_record record = {
            .kind = lies[i].kind, .name_len = lies[i].name_len, .size = lies[i].size};
        collect_reader_init(&r, 10, 100);
        assert_int_equal(collect_reader_feed(&r, (char *)&record, sizeof(record)), -EBADMSG);
        assert_int_equal(r.files.count, 0);
        collect_reader_done(&r);
    }
}

static void too_many_files_are_refused(void **state)
{
    struct collect_reader r;
    collect_reader_init(&r, 1, 100);
    feed_record(&r, COLLECT_FILE, "one", 1, "1", 0);
    feed_record(&r, COLLECT_FILE, "two", 1, "2", -EBADMSG);
    collect_reader_done(&r);
}

static void names_that_are_none_carry_no_content(void **state)
{
    static const char *const names[] = {"../x", "/etc/passwd", "a//b", "a\nb", "\xff"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct collect_reader r;
        collect_reader_init(&r, 10, 100);
        feed_record(&r, COLLECT_FILE, names[i], 1, "x", 0);
        assert_string_equal(r.files.items[0].error, "bad_name");
        assert_int_equal(r.files.items[0].size, 0);
        collect_reader_done(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_job_is_sealed),
        cmocka_unit_test(an_unsealed_job_is_refused),
        cmocka_unit_test(damaged_jobs_do_no_harm),
        cmocka_unit_test(collected_files_arrive_in_any_pieces),
        cmocka_unit_test(a_lying_collector_is_cut_off),
        cmocka_unit_test(too_many_files_are_refused),
        cmocka_unit_test(names_that_are_none_carry_no_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
