/* SPDX-License-Identifier: Apache-2.0 */

/* What the server makes of a helper (proto/files.h) that lies, stops or ends: the test is the
 * helper. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "session/internal.h"

static struct sessions all;

/* A session without a box, and a conversation whose other end is ours. */
struct fixture {
    struct session s;
    int fd;
};

static void begin(struct fixture *f)
{
    int pair[2];
    memset(f, 0, sizeof(*f));
    f->s.all = &all;
    (void)pthread_mutex_init(&f->s.lock, NULL);
    session_box_init(&f->s.box);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    f->s.watcher = (struct transfer){.s = &f->s, .fd = pair[0], .stall_ms = 50};
    f->fd = pair[1];
}

static void end(struct fixture *f)
{
    close_fd(&f->s.watcher.fd);
    close_fd(&f->fd);
    (void)pthread_mutex_destroy(&f->s.lock);
}

static void say(const struct fixture *f, struct files_record record, const char *name)
{
    assert_int_equal(write(f->fd, &record, sizeof(record)), sizeof(record));
    if (name)
        assert_int_equal(write(f->fd, name, strlen(name)), strlen(name));
}

static void records_that_no_helper_sends(void **state)
{
    static const struct files_record bad[] = {
        {.kind = 0},
        {.kind = FILES_END + 1},
        {.kind = UINT32_MAX},
        {.kind = FILES_ENTRY, .name_len = FILES_NAME_MAX + 1},
        {.kind = FILES_ENTRY, .name_len = UINT32_MAX},
        {.kind = FILES_ENTRY, .size = (uint64_t)INT64_MAX + 1},
        {.kind = FILES_DATA, .size = 0},
        {.kind = FILES_DATA, .size = FILES_PIECE_MAX + 1},
        {.kind = FILES_DATA, .size = UINT64_MAX},
        {.kind = FILES_DATA, .size = 1, .name_len = 1},
        {.kind = FILES_END, .name_len = 4},
    };
    char name[FILES_NAME_MAX + 1];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fixture f;
        struct files_record got;
        begin(&f);
        say(&f, bad[i], NULL);
        assert_int_equal(transfer_next(&f.s.watcher, &got, name), -EBADMSG);
        end(&f);
    }
}

static void names_that_leave_the_directory(void **state)
{
    static const struct {
        const char *name;
        int result;
    } cases[] = {{"/etc/passwd", -EBADMSG}, {"..", -EBADMSG}, {"../x", -EBADMSG},
        {"a/..", -EBADMSG}, {"a/../b", -EBADMSG}, {"/", -EBADMSG}, {"a", 0}, {"..a", 0},
        {"a/..b/c", 0}, {"...", 0}, {"a/b", 0}, {".", 0}};
    char name[FILES_NAME_MAX + 1];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f;
        struct files_record got;
        begin(&f);
        say(&f,
            (struct files_record){
                .kind = FILES_ENTRY, .name_len = (uint32_t)strlen(cases[i].name)},
            cases[i].name);
        assert_int_equal(transfer_next(&f.s.watcher, &got, name), cases[i].result);
        end(&f);
    }
}

static void names_with_a_nul(void **state)
{
    char name[FILES_NAME_MAX + 1];
    struct fixture f;
    struct files_record got;
    begin(&f);
    say(&f, (struct files_record){.kind = FILES_ENTRY, .name_len = 3}, NULL);
    assert_int_equal(write(f.fd, "a\0b", 3), 3);
    assert_int_equal(transfer_next(&f.s.watcher, &got, name), -EBADMSG);
    end(&f);
}

static void one_that_stops_or_ends(void **state)
{
    char name[FILES_NAME_MAX + 1];
    struct fixture f;
    struct files_record got;
    begin(&f);
    assert_int_equal(transfer_next(&f.s.watcher, &got, name), -ETIMEDOUT);
    assert_int_equal(write(f.fd, "half", 4), 4);
    assert_int_equal(transfer_next(&f.s.watcher, &got, name), -ETIMEDOUT);
    close_fd(&f.fd);
    assert_int_equal(transfer_next(&f.s.watcher, &got, name), -EPIPE);
    end(&f);
    begin(&f); /* does not read what it is sent */
    struct files_request request = {.op = FILES_LIST};
    int r = 0;
    for (int i = 0; r == 0 && i < 100000; i++)
        r = transfer_ask(&f.s.watcher, request, "");
    assert_int_equal(r, -ETIMEDOUT);
    close_fd(&f.fd);
    assert_int_equal(transfer_ask(&f.s.watcher, request, ""), -EPIPE);
    end(&f);
}

static void downloads_that_lie(void **state)
{
    static const struct {
        struct files_record record;
        int want;
    } rows[] = {
        {{.kind = FILES_DATA, .size = 11}, -EBADMSG}, /* more than it has */
        {{.kind = FILES_ENTRY}, -EBADMSG}, {{.kind = FILES_END}, -EBADMSG}, /* before its end */
        {{.kind = FILES_END, .error = -EACCES}, -EACCES},
        {{.kind = FILES_END, .error = 5}, -EBADMSG},
        {{.kind = FILES_DATA, .size = 4}, -ETIMEDOUT}, /* whose bytes do not come */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        cleanup_buf struct buf to;
        buf_init(&to, 1 << 20);
        begin(&f);
        f.s.watcher.left = 10;
        say(&f, rows[i].record, NULL);
        assert_int_equal(transfer_read(&f.s.watcher, &to), rows[i].want);
        end(&f);
    }
}

/* Asks, as after an exec, with the answer already there. */
static json_t *changes(struct fixture *f, bool *ret_cut)
{
    const struct session_changes asked = {.is_asked = true};
    return session_changes_end(&f->s, &asked, ret_cut);
}

static void changes_that_are_told(void **state)
{
    struct fixture f;
    bool cut;
    begin(&f);
    say(&f, (struct files_record){.kind = FILES_ENTRY, .name_len = 1}, "b");
    say(&f, (struct files_record){.kind = FILES_ENTRY, .name_len = 5}, "a\xff\n/c");
    say(&f, (struct files_record){.kind = FILES_END}, NULL);
    json_t *list = changes(&f, &cut);
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_array_get(list, 0)), "a\xef\xbf\xbd\n/c");
    assert_false(cut);
    assert_true(f.s.watcher.fd >= 0);
    json_decref(list);
    say(&f, (struct files_record){.kind = FILES_END, .error = -E2BIG}, NULL);
    list = changes(&f, &cut);
    assert_true(json_array_size(list) == 0 && cut);
    json_decref(list);
    say(&f, (struct files_record){.kind = FILES_DATA, .size = 1}, "x");
    assert_null(changes(&f, &cut));
    assert_true(f.s.watcher.fd < 0); /* nobody listens to it any more */
    end(&f);
}

static void changes_without_end(void **state)
{
    struct fixture f;
    bool cut;
    begin(&f);
    pid_t pid = fork();
    if (pid == 0) {
        const struct files_record record = {.kind = FILES_ENTRY, .name_len = 1};
        char bytes[sizeof(record) + 1];
        memcpy(bytes, &record, sizeof(record));
        bytes[sizeof(record)] = 'x';
        close_fd(&f.s.watcher.fd);
        while (send(f.fd, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
            ;
        _exit(0);
    }
    close_fd(&f.fd);
    json_t *list = changes(&f, &cut);
    assert_int_equal(json_array_size(list), 1000);
    assert_true(cut && f.s.watcher.fd < 0);
    json_decref(list);
    assert_int_equal(waitpid(pid, NULL, 0), pid); /* it cannot go on talking to nobody */
    end(&f);
}

int main(void)
{
    (void)pthread_mutex_init(&all.lock, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_that_no_helper_sends),
        cmocka_unit_test(names_that_leave_the_directory),
        cmocka_unit_test(names_with_a_nul),
        cmocka_unit_test(one_that_stops_or_ends),
        cmocka_unit_test(downloads_that_lie),
        cmocka_unit_test(changes_that_are_told),
        cmocka_unit_test(changes_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
