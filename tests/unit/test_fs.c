/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about file access, in a directory of its own that each test gets fresh. The tests of
 * fs_open_beneath run twice: as the kernel is, and in a child whose system call filter answers
 * ENOSYS to openat2, so that the component walk is held to the same facts. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/os/fs.h"

static char root_path[] = "/tmp/hermes-fs-XXXXXX";
static int root = -1;

static int make_root(void **state)
{
    memcpy(strrchr(root_path, '-') + 1, "XXXXXX", 6);
    if (!mkdtemp(root_path))
        return -1;
    root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? -1 : 0;
}

static int drop_root(void **state)
{
    (void)close(root);
    return fs_remove_tree(AT_FDCWD, root_path);
}

static void make_file(const char *path, const char *text)
{
    cleanup_close int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
}

static bool exists(const char *path)
{
    return faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int count_fds(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Opens as a stranger's path would be; 0 when that works and the descriptor is O_CLOEXEC. */
static int open_and_close(const char *path, int flags)
{
    int fd = fs_open_beneath(root, path, flags, 0600);
    if (fd < 0)
        return fd;
    int fd_flags = fcntl(fd, F_GETFD);
    (void)close(fd);
    return fd_flags & FD_CLOEXEC ? 0 : -EDOM;
}

static void plain_paths_open(void)
{
    assert_int_equal(mkdirat(root, "d", 0700), 0);
    assert_int_equal(mkdirat(root, "d/e", 0700), 0);
    make_file("d/e/f", "text");
    assert_int_equal(open_and_close("d/e/f", O_RDONLY), 0);
    assert_int_equal(open_and_close("./d//e/./f", O_RDONLY), 0);
    assert_int_equal(open_and_close("d/e", O_RDONLY | O_DIRECTORY), 0);
    assert_int_equal(open_and_close("d/e", O_PATH), 0);
    assert_int_equal(open_and_close(".", O_RDONLY | O_DIRECTORY), 0);
    assert_int_equal(open_and_close("d/e/f/.", O_RDONLY), -ENOTDIR);
    assert_int_equal(open_and_close("d/e/f", O_RDONLY | O_DIRECTORY), -ENOTDIR);
    assert_int_equal(open_and_close("d/missing", O_RDONLY), -ENOENT);
    assert_int_equal(open_and_close("missing/f", O_RDONLY), -ENOENT);
    assert_int_equal(open_and_close("d/e", O_WRONLY), -EISDIR);
}

static void files_are_created_with_their_mode(void)
{
    struct stat st;

    assert_int_equal(open_and_close("new", O_WRONLY | O_CREAT | O_EXCL), 0);
    assert_int_equal(fstatat(root, "new", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(open_and_close("new", O_WRONLY | O_CREAT | O_EXCL), -EEXIST);
    make_file("full", "text");
    assert_int_equal(open_and_close("full", O_WRONLY | O_TRUNC), 0);
    assert_int_equal(fstatat(root, "full", &st, 0), 0);
    assert_int_equal(st.st_size, 0);
}

static void escapes_are_refused(void)
{
    assert_int_equal(mkdirat(root, "d", 0700), 0);
    assert_int_equal(open_and_close("/etc/passwd", O_RDONLY), -EXDEV);
    assert_int_equal(open_and_close("..", O_RDONLY), -EXDEV);
    assert_int_equal(open_and_close("../x", O_RDONLY | O_CREAT), -EXDEV);
    assert_int_equal(open_and_close("d/../../x", O_RDONLY), -EXDEV);
    assert_int_equal(open_and_close("d/..", O_RDONLY), -EXDEV);
    assert_int_equal(open_and_close("", O_RDONLY), -ENOENT);
    assert_int_equal(open_and_close("d/", O_RDONLY), -EINVAL);
    assert_int_equal(open_and_close("/", O_RDONLY), -EXDEV);
}

static void links_are_never_followed(void)
{
    struct stat st;

    assert_int_equal(mkdirat(root, "d", 0700), 0);
    make_file("d/f", "text");
    assert_int_equal(symlinkat("d", root, "inside"), 0);
    assert_int_equal(symlinkat("/etc", root, "outside"), 0);
    assert_int_equal(symlinkat("loop", root, "loop"), 0);
    assert_int_equal(symlinkat("created", root, "dangling"), 0);
    assert_int_equal(open_and_close("inside", O_RDONLY), -ELOOP);
    assert_int_equal(open_and_close("inside", O_RDONLY | O_DIRECTORY), -ELOOP);
    assert_int_equal(open_and_close("inside", O_PATH), -ELOOP);
    assert_int_equal(open_and_close("inside/f", O_RDONLY), -ELOOP);
    assert_int_equal(open_and_close("inside/.", O_RDONLY), -ELOOP);
    assert_int_equal(open_and_close("inside/", O_RDONLY), -EINVAL);
    assert_int_equal(open_and_close("outside/passwd", O_RDONLY), -ELOOP);
    assert_int_equal(open_and_close("loop", O_RDONLY), -ELOOP);
    assert_int_equal(open_and_close("dangling", O_WRONLY | O_CREAT), -ELOOP);
    assert_false(exists("created"));

    cleanup_close int fd = fs_open_beneath(root, "inside", O_PATH | O_NOFOLLOW, 0);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void fifos_and_sockets_do_not_hang(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup_close int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(mkfifoat(root, "fifo", 0600), 0);
    assert_int_equal(open_and_close("fifo", O_RDONLY), 0);
    assert_int_equal(open_and_close("fifo", O_WRONLY), -ENXIO);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", root_path);
    assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(open_and_close("sock", O_RDONLY), -ENXIO);
}

static void huge_names_are_refused(void)
{
    char name[PATH_MAX + 10];

    memset(name, 'a', sizeof(name));
    name[256] = '\0';
    assert_int_equal(open_and_close(name, O_RDONLY), -ENAMETOOLONG);
    name[255] = '\0';
    assert_int_equal(open_and_close(name, O_RDONLY | O_CREAT), 0);
    memset(name, 'a', sizeof(name));
    for (size_t i = 1; i < sizeof(name); i += 2)
        name[i] = '/';
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(open_and_close(name, O_RDONLY), -ENAMETOOLONG);
}

static void bad_descriptors_are_told(void)
{
    make_file("f", "");
    cleanup_close int file = openat(root, "f", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fs_open_beneath(-1, "f", O_RDONLY, 0), -EBADF);
    assert_int_equal(fs_open_beneath(file, "f", O_RDONLY, 0), -ENOTDIR);
}

static void descriptors_are_not_lost(void)
{
    int before = count_fds();

    assert_int_equal(mkdirat(root, "d", 0700), 0);
    assert_int_equal(symlinkat("d", root, "link"), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(open_and_close("d/missing/y", O_RDONLY), -ENOENT);
        assert_int_equal(open_and_close("link/x", O_RDONLY), -ELOOP);
        assert_int_equal(open_and_close("d/x", O_RDONLY | O_CREAT), 0);
    }
    assert_int_equal(count_fds(), before);
}

/* A descriptor stays in the mount namespace it was opened in, so root is opened anew. */
static bool enter_mount_namespace(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return false;
    (void)close(root);
    root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return root >= 0;
}

/* As root only: without mounts there is nothing to refuse. */
static void other_mounts_are_refused(void)
{
    char path[PATH_MAX];

    if (!enter_mount_namespace())
        return;
    assert_int_equal(mkdirat(root, "d", 0700), 0);
    assert_int_equal(mkdirat(root, "bind", 0700), 0);
    make_file("d/f", "text");
    make_file("file", "");
    (void)snprintf(path, sizeof(path), "%s/bind", root_path);
    assert_int_equal(mount(root_path, path, NULL, MS_BIND, NULL), 0);
    assert_int_equal(open_and_close("bind", O_RDONLY), -EXDEV);
    assert_int_equal(open_and_close("bind/d/f", O_RDONLY), -EXDEV);

    char from[PATH_MAX];
    struct stat st;
    (void)snprintf(from, sizeof(from), "%s/d/f", root_path);
    (void)snprintf(path, sizeof(path), "%s/file", root_path);
    assert_int_equal(mount(from, path, NULL, MS_BIND, NULL), 0);
    assert_int_equal(open_and_close("file", O_WRONLY | O_TRUNC), -EXDEV);
    assert_int_equal(fstatat(root, "d/f", &st, 0), 0);
    assert_int_equal(st.st_size, 4);
}

/* Another process swaps a directory and a link to /etc all the while; nothing of /etc may ever
 * be opened. */
static void swapped_links_never_lead_outside(void)
{
    struct stat etc;
    struct stat st;
    int opened = 0;

    assert_int_equal(stat("/etc/passwd", &etc), 0);
    assert_int_equal(mkdirat(root, "d", 0700), 0);
    make_file("d/passwd", "decoy");
    assert_int_equal(symlinkat("/etc", root, "link"), 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            (void)renameat2(root, "d", root, "link", RENAME_EXCHANGE);
    }
    for (int i = 0; i < 20000; i++) {
        int fd = fs_open_beneath(root, "d/passwd", O_RDONLY, 0);
        if (fd < 0)
            continue;
        assert_int_equal(fstat(fd, &st), 0);
        assert_false(st.st_dev == etc.st_dev && st.st_ino == etc.st_ino);
        (void)close(fd);
        opened++;
    }
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(opened > 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} beneath_facts[] = {
    {"plain_paths_open", plain_paths_open},
    {"files_are_created_with_their_mode", files_are_created_with_their_mode},
    {"escapes_are_refused", escapes_are_refused},
    {"links_are_never_followed", links_are_never_followed},
    {"fifos_and_sockets_do_not_hang", fifos_and_sockets_do_not_hang},
    {"huge_names_are_refused", huge_names_are_refused},
    {"bad_descriptors_are_told", bad_descriptors_are_told},
    {"descriptors_are_not_lost", descriptors_are_not_lost},
    {"other_mounts_are_refused", other_mounts_are_refused},
    {"swapped_links_never_lead_outside", swapped_links_never_lead_outside},
};

static int refuse_openat2(int errnum)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)errnum),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

/* Each fact runs in a child: the filter and the mount namespace end with it. */
static void check_beneath_facts(int refused_with)
{
    for (size_t i = 0; i < sizeof(beneath_facts) / sizeof(beneath_facts[0]); i++) {
        int status;
        void *none = NULL;

        assert_int_equal(make_root(&none), 0);
        (void)fflush(stdout);
        pid_t parent = getpid();
        pid_t pid = fork();
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            /* A failed assertion ends the child by a signal instead of unwinding. */
            (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
            if (getppid() != parent || (refused_with && refuse_openat2(refused_with) < 0))
                _exit(3);
            if (refused_with &&
                (syscall(SYS_openat2, -1, "", NULL, 0) != -1 || errno != refused_with))
                _exit(4);
            beneath_facts[i].run();
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(drop_root(&none), 0);
        if (status != 0)
            fail_msg("%s: wait status %#x", beneath_facts[i].name, (unsigned)status);
    }
}

static void open_beneath_holds_with_openat2(void **state)
{
    check_beneath_facts(0);
}

static void open_beneath_holds_without_openat2(void **state)
{
    check_beneath_facts(ENOSYS);
}

static void open_beneath_holds_where_openat2_is_forbidden(void **state)
{
    check_beneath_facts(EPERM);
}

static void read_file_takes_exactly_what_fits(void **state)
{
    cleanup_buf struct buf b;

    make_file("f", "12345");
    buf_init(&b, 10);
    assert_int_equal(fs_read_file(root, "f", &b), 0);
    assert_int_equal(fs_read_file(root, "f", &b), 0);
    assert_string_equal(b.data, "1234512345");
    assert_int_equal(fs_read_file(root, "f", &b), -EMSGSIZE);
    assert_string_equal(b.data, "1234512345");
    make_file("empty", "");
    assert_int_equal(fs_read_file(root, "empty", &b), 0);
}

/* Files of /proc say that they are empty. */
static void read_file_does_not_believe_the_size(void **state)
{
    cleanup_buf struct buf b;
    cleanup_buf struct buf small;

    buf_init(&b, 1 << 16);
    assert_int_equal(fs_read_file(AT_FDCWD, "/proc/self/status", &b), 0);
    assert_true(b.len > 100);
    buf_init(&small, 10);
    assert_int_equal(fs_read_file(AT_FDCWD, "/proc/self/status", &small), -EMSGSIZE);
    assert_int_equal(small.len, 0);
}

static void read_file_refuses_what_is_no_file(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, 100);
    assert_int_equal(mkfifoat(root, "fifo", 0600), 0);
    assert_int_equal(fs_read_file(root, "fifo", &b), -EINVAL);
    assert_int_equal(fs_read_file(root, ".", &b), -EISDIR);
    assert_int_equal(fs_read_file(AT_FDCWD, "/dev/zero", &b), -EINVAL);
    assert_int_equal(fs_read_file(root, "missing", &b), -ENOENT);
    assert_int_equal(fs_read_file(root, "", &b), -ENOENT);
    assert_int_equal(b.len, 0);
}

static void write_all_waits_for_a_slow_reader(void **state)
{
    enum { SIZE = 1 << 20 };
    int fds[2];
    cleanup_free char *data = xcalloc(1, SIZE);

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    pid_t pid = fork();
    if (pid == 0) {
        size_t total = 0;
        char chunk[5000];
        (void)close(fds[1]);
        (void)fcntl(fds[0], F_SETFL, 0);
        for (ssize_t n; (n = read(fds[0], chunk, sizeof(chunk))) > 0;)
            total += (size_t)n;
        _exit(total == SIZE ? 0 : 1);
    }
    (void)close(fds[0]);
    assert_int_equal(fs_write_all(fds[1], data, SIZE), 0);
    (void)close(fds[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void write_all_reports_failure(void **state)
{
    cleanup_close int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    assert_int_equal(fs_write_all(full, "x", 1), -ENOSPC);
    assert_int_equal(fs_write_all(-1, "x", 1), -EBADF);
    assert_int_equal(fs_write_all(-1, NULL, 0), 0);
}

static void write_once_wants_a_file_that_is_there(void **state)
{
    cleanup_buf struct buf b;

    make_file("f", "");
    buf_init(&b, 100);
    assert_int_equal(fs_write_once(root, "f", "max"), 0);
    assert_int_equal(fs_read_file(root, "f", &b), 0);
    assert_string_equal(b.data, "max");
    assert_int_equal(fs_write_once(root, "missing", "max"), -ENOENT);
    assert_false(exists("missing"));
    assert_int_equal(fs_write_once(AT_FDCWD, "/dev/full", "x"), -ENOSPC);
}

static void read_small_strips_one_newline_and_never_cuts(void **state)
{
    char out[5];

    make_file("f", "ab\n\n");
    assert_int_equal(fs_read_small(root, "f", out, sizeof(out)), 3);
    assert_string_equal(out, "ab\n");
    make_file("f", "abcde");
    assert_int_equal(fs_read_small(root, "f", out, sizeof(out)), -EMSGSIZE);
    assert_string_equal(out, "");
    make_file("f", "abcd");
    assert_int_equal(fs_read_small(root, "f", out, sizeof(out)), 4);
    assert_string_equal(out, "abcd");
    make_file("f", "");
    assert_int_equal(fs_read_small(root, "f", out, sizeof(out)), 0);
    assert_string_equal(out, "");
    assert_int_equal(fs_read_small(root, "missing", out, sizeof(out)), -ENOENT);
    assert_int_equal(fs_read_small(root, ".", out, sizeof(out)), -EISDIR);
    assert_int_equal(fs_read_small(root, "f", out, 0), -EINVAL);
}

static void mkdirs_makes_what_is_missing(void **state)
{
    char path[PATH_MAX];
    struct stat st;

    assert_int_equal(fs_mkdirs(root, "a/b//c/", 0700), 0);
    assert_int_equal(fs_mkdirs(root, "a/b/c", 0700), 0);
    assert_int_equal(fs_mkdirs(root, "./a/../x", 0700), 0);
    assert_true(exists("a/b/c") && exists("x"));
    assert_int_equal(fstatat(root, "a/b/c", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    (void)snprintf(path, sizeof(path), "%s/y/z", root_path);
    assert_int_equal(fs_mkdirs(-1, path, 0700), 0);
    assert_true(exists("y/z"));
    assert_int_equal(fs_mkdirs(root, "/", 0700), 0);
}

static void mkdirs_refuses_what_is_no_directory(void **state)
{
    char name[PATH_MAX + 1];

    make_file("f", "");
    assert_int_equal(fs_mkdirs(root, "f", 0700), -ENOTDIR);
    assert_int_equal(fs_mkdirs(root, "f/a", 0700), -ENOTDIR);
    assert_int_equal(symlinkat("nowhere", root, "dangling"), 0);
    assert_int_equal(fs_mkdirs(root, "dangling/a", 0700), -ENOTDIR);
    assert_int_equal(fs_mkdirs(root, "", 0700), -ENOENT);
    memset(name, 'a', PATH_MAX);
    name[PATH_MAX] = '\0';
    assert_int_equal(fs_mkdirs(root, name, 0700), -ENAMETOOLONG);
    name[256] = '\0';
    assert_int_equal(fs_mkdirs(root, name, 0700), -ENAMETOOLONG);
    assert_int_equal(fs_mkdirs(AT_FDCWD, "/proc/hermes", 0700), -ENOENT);
}

static void remove_takes_all_kinds_of_entries(void **state)
{
    char name[NAME_MAX + 1];

    assert_int_equal(fs_mkdirs(root, "t/a/b/c", 0700), 0);
    assert_int_equal(mkfifoat(root, "t/fifo", 0600), 0);
    assert_int_equal(mknodat(root, "t/sock", S_IFSOCK | 0600, 0), 0);
    assert_int_equal(symlinkat("nowhere", root, "t/a/dangling"), 0);
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = '\0';
    cleanup_close int tree = openat(root, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(tree, name, 0700), 0);
    for (int i = 0; i < 3000; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "t/a/b/%d", i);
        make_file(path, "x");
    }
    make_file("t/-rf", "");
    make_file("t/\n\xff", "");
    assert_int_equal(fs_remove_tree(root, "t"), 0);
    assert_false(exists("t"));
}

static void remove_of_what_is_missing_is_success(void **state)
{
    assert_int_equal(fs_remove_tree(root, "missing"), 0);
    assert_int_equal(fs_remove_tree(root, "missing/below"), 0);
    make_file("file", "");
    assert_int_equal(fs_remove_tree(root, "file"), 0);
    assert_false(exists("file"));
}

static void remove_refuses_names_that_lead_elsewhere(void **state)
{
    assert_int_equal(fs_mkdirs(root, "t/a", 0700), 0);
    assert_int_equal(fs_remove_tree(root, "."), -EINVAL);
    assert_int_equal(fs_remove_tree(root, ".."), -EINVAL);
    assert_int_equal(fs_remove_tree(root, "t/.."), -EINVAL);
    assert_int_equal(fs_remove_tree(root, "t/"), -EINVAL);
    assert_int_equal(fs_remove_tree(root, ""), -EINVAL);
    assert_int_equal(fs_remove_tree(root, "/"), -EINVAL);
    assert_true(exists("t/a"));
}

static void remove_does_not_follow_links(void **state)
{
    assert_int_equal(fs_mkdirs(root, "keep/sub", 0700), 0);
    make_file("keep/sub/f", "x");
    assert_int_equal(fs_mkdirs(root, "t/d", 0700), 0);
    assert_int_equal(symlinkat("../keep", root, "t/link"), 0);
    assert_int_equal(symlinkat("../../keep/sub", root, "t/d/link"), 0);
    assert_int_equal(symlinkat("keep", root, "toplink"), 0);
    assert_int_equal(fs_remove_tree(root, "t"), 0);
    assert_int_equal(fs_remove_tree(root, "toplink"), 0);
    assert_false(exists("t"));
    assert_false(exists("toplink"));
    assert_true(exists("keep/sub/f"));
}

/* A tree far deeper than any path can name, with files on the way, removed with few
 * descriptors. */
static void remove_goes_deeper_than_any_path(void **state)
{
    enum { DEPTH = 5000 };
    struct rlimit old_limit;
    int before = count_fds();
    int fd = dup(root);

    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(mkdirat(fd, "t", 0700), 0);
        if (i % 7 == 0)
            assert_int_equal(mkdirat(fd, "beside", 0700), 0);
        int next = openat(fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        assert_int_equal(mknodat(next, "f", S_IFREG | 0600, 0), 0);
        (void)close(fd);
        fd = next;
    }
    (void)close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
    struct rlimit limit = {.rlim_cur = 40, .rlim_max = old_limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int r = fs_remove_tree(root, "t");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
    assert_int_equal(r, 0);
    assert_false(exists("t"));
    assert_int_equal(count_fds(), before);
}

/* The names under which deep directories are moved may be taken, by files and by directories.
 */
static void remove_copes_with_taken_names(void **state)
{
    char path[512] = "t";

    for (int i = 0; i < 60; i++)
        (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/d");
    assert_int_equal(fs_mkdirs(root, path, 0700), 0);
    make_file("t/.hermes-removed-0", "");
    assert_int_equal(fs_mkdirs(root, "t/.hermes-removed-1/x", 0700), 0);
    assert_int_equal(fs_mkdirs(root, "t/.hermes-removed-2", 0700), 0);
    assert_int_equal(symlinkat("/etc", root, "t/.hermes-removed-3"), 0);
    assert_int_equal(fs_remove_tree(root, "t"), 0);
    assert_false(exists("t"));
}

/* Runs `fact` in a child and expects it to end with 0; 77 means it could not be tried. */
static void check_in_child(void (*fact)(void))
{
    int status;

    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
        fact();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("it needs root");
    assert_int_equal(status, 0);
}

static void remove_as_owner_without_permissions(void)
{
    char path[512] = "t";

    for (int i = 0; i < 40; i++)
        (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/d");
    assert_int_equal(fchmod(root, 0777), 0);
    if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        _exit(77);
    assert_int_equal(fs_mkdirs(root, path, 0700), 0);
    make_file("t/d/f", "x");
    for (char *end; (end = strrchr(path, '/')); *end = '\0')
        assert_int_equal(fchmodat(root, path, 0, 0), 0);
    assert_int_equal(fchmodat(root, "t", 0500, 0), 0);
    assert_int_equal(fs_remove_tree(root, "t"), 0);
    assert_false(exists("t"));
}

static void remove_opens_directories_their_owner_closed(void **state)
{
    check_in_child(remove_as_owner_without_permissions);
}

static void remove_around_mounts(void)
{
    char path[PATH_MAX];

    if (!enter_mount_namespace())
        _exit(77);
    assert_int_equal(fs_mkdirs(root, "keep", 0700), 0);
    make_file("keep/f", "x");
    assert_int_equal(fs_mkdirs(root, "t/a/bind", 0700), 0);
    assert_int_equal(fs_mkdirs(root, "t/tmpfs", 0700), 0);
    make_file("t/a/f", "x");
    (void)snprintf(path, sizeof(path), "%s/t/tmpfs", root_path);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, NULL), 0);
    make_file("t/tmpfs/f", "x");
    char from[PATH_MAX];
    (void)snprintf(from, sizeof(from), "%s/keep", root_path);
    (void)snprintf(path, sizeof(path), "%s/t/a/bind", root_path);
    assert_int_equal(mount(from, path, NULL, MS_BIND, NULL), 0);

    assert_int_equal(fs_remove_tree(root, "t"), -EBUSY);
    assert_true(exists("keep/f") && exists("t/tmpfs/f"));
    assert_false(exists("t/a/f"));
    assert_int_equal(fs_remove_tree(root, "t/tmpfs"), -EBUSY);
    assert_true(exists("t/tmpfs/f"));
}

static void remove_does_not_cross_mounts(void **state)
{
    check_in_child(remove_around_mounts);
}

/* Directories are swapped with links to a directory outside while the tree goes. */
static void remove_is_safe_while_links_are_swapped(void **state)
{
    char path[64];

    assert_int_equal(fs_mkdirs(root, "keep", 0700), 0);
    for (int i = 0; i < 50; i++) {
        (void)snprintf(path, sizeof(path), "keep/%d", i);
        make_file(path, "x");
    }
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            (void)renameat2(root, "t/d", root, "t/link", RENAME_EXCHANGE);
    }
    for (int round = 0; round < 200; round++) {
        assert_int_equal(fs_mkdirs(root, "t", 0700), 0);
        assert_true(symlinkat("../keep", root, "t/link") == 0 || errno == EEXIST);
        (void)fs_mkdirs(root, "t/d/x", 0700);
        (void)fs_remove_tree(root, "t");
    }
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fs_remove_tree(root, "t"), 0);
    for (int i = 0; i < 50; i++) {
        (void)snprintf(path, sizeof(path), "keep/%d", i);
        assert_true(exists(path));
    }
}

static void copy_goes_from_offset_to_end(void **state)
{
    cleanup_buf struct buf b;
    cleanup_free char *big = xcalloc(1, 3000001);

    for (int i = 0; i < 3000000; i++)
        big[i] = (char)('a' + i % 26);
    make_file("from", big);
    cleanup_close int from = openat(root, "from", O_RDONLY | O_CLOEXEC);
    cleanup_close int to = openat(root, "to", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(fs_copy_fd(from, to), 0);
    buf_init(&b, 4000000);
    assert_int_equal(fs_read_file(root, "to", &b), 0);
    assert_string_equal(b.data, big);
    assert_int_equal(lseek(from, 0, SEEK_CUR), 3000000);
    assert_int_equal(lseek(to, 0, SEEK_CUR), 3000000);

    assert_int_equal(lseek(from, -5, SEEK_END), 2999995);
    assert_int_equal(fs_copy_fd(from, to), 0);
    buf_clear(&b);
    assert_int_equal(fs_read_file(root, "to", &b), 0);
    assert_int_equal(b.len, 3000005);
    assert_string_equal(b.data + 3000000, big + 2999995);
}

static void copy_works_across_kinds_of_files(void **state)
{
    char text[100];
    int fds[2];

    /* /proc to a file: no size, but content. */
    cleanup_close int proc = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    cleanup_close int to = openat(root, "to", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(fs_copy_fd(proc, to), 0);
    assert_true(lseek(to, 0, SEEK_END) > 100);

    /* A memfd to a pipe, and on to a file opened for appending. */
    cleanup_close int memory = fs_memfd_sealed("m", "hello", 5);
    assert_true(memory >= 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(fs_copy_fd(memory, fds[1]), 0);
    (void)close(fds[1]);
    make_file("log", "say ");
    cleanup_close int log = openat(root, "log", O_RDWR | O_APPEND | O_CLOEXEC);
    assert_int_equal(fs_copy_fd(fds[0], log), 0);
    (void)close(fds[0]);
    assert_int_equal(fs_read_small(root, "log", text, sizeof(text)), 9);
    assert_string_equal(text, "say hello");

    cleanup_close int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(lseek(memory, 0, SEEK_SET), 0);
    assert_int_equal(fs_copy_fd(memory, full), -ENOSPC);
    assert_int_equal(fs_copy_fd(root, to), -EISDIR);
    assert_int_equal(fs_copy_fd(-1, to), -EBADF);
}

static void sealed_memfd_cannot_be_changed(void **state)
{
    char text[10] = "";
    cleanup_close int fd = fs_memfd_sealed("job", "a\0b", 3);

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof(text)), 3);
    assert_memory_equal(text, "a\0b", 3);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 100), -1);
    assert_ptr_equal(mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);

    cleanup_close int empty = fs_memfd_sealed("empty", NULL, 0);
    assert_true(empty >= 0);
    assert_int_equal(read(empty, text, sizeof(text)), 0);
}

/* Makes root/NAME with an owner. */
static void make_owned(const char *name, uid_t uid, mode_t mode)
{
    cleanup_close int fd = openat(root, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && fchmod(fd, mode) == 0 && fchown(fd, uid, uid) == 0);
}

static int read_trusted(const char *name)
{
    cleanup_buf struct buf text;
    struct err err = {0};
    cleanup_free char *path = xasprintf("%s/%s", root_path, name);
    buf_init(&text, 100);
    int r = fs_read_trusted(path, &text, &err);
    assert_true(r == 0 || strstr(err.message, path));
    return r;
}

static void files_of_others_are_not_obeyed(void **state)
{
    if (geteuid() != 0)
        skip();
    (void)unsetenv("SUDO_UID");
    make_owned("ours", 0, 0644);
    make_owned("group", 0, 0664);
    make_owned("all", 0, 0646);
    make_owned("theirs", 1234, 0600);
    assert_int_equal(symlinkat("ours", root, "link"), 0);
    assert_int_equal(symlinkat("ours", root, "their_link"), 0);
    assert_int_equal(fchownat(root, "their_link", 1234, 1234, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(read_trusted("ours"), 0);
    assert_int_equal(read_trusted("link"), 0);
    assert_int_equal(read_trusted("group"), -EPERM);
    assert_int_equal(read_trusted("all"), -EPERM);
    assert_int_equal(read_trusted("theirs"), -EPERM);
    assert_int_equal(read_trusted("their_link"), -EPERM);
    assert_int_equal(read_trusted("missing"), -ENOENT);
    (void)setenv("SUDO_UID", "1234", 1);
    assert_int_equal(read_trusted("theirs"), 0);
    (void)setenv("SUDO_UID", "1235", 1);
    assert_int_equal(read_trusted("theirs"), -EPERM);
    (void)unsetenv("SUDO_UID");
}

static uid_t owner_of(const char *name)
{
    struct stat st;
    assert_int_equal(fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st.st_uid;
}

static void a_tree_is_given_without_what_others_have_in_it(void **state)
{
    if (geteuid() != 0)
        skip();
    make_owned("outside", 0, 0600);
    assert_int_equal(mkdirat(root, "tree", 0700), 0);
    assert_int_equal(mkdirat(root, "tree/dir", 0700), 0);
    make_owned("tree/dir/file", 1234, 0600);
    make_owned("tree/root_s", 0, 0600);
    assert_int_equal(linkat(root, "outside", root, "tree/hard", 0), 0);
    assert_int_equal(symlinkat("../outside", root, "tree/soft"), 0);
    assert_int_equal(symlinkat("..", root, "tree/up"), 0);
    assert_int_equal(fchownat(root, "tree/soft", 1234, 1234, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(fchownat(root, "tree/up", 1234, 1234, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(fchownat(root, "tree/dir", 1234, 1234, 0), 0);
    assert_int_equal(fchownat(root, "tree", 1234, 1234, 0), 0);
    assert_int_equal(fs_give_tree(root, "tree", 1235, 1236), 0);
    static const char *const given[] = {
        "tree", "tree/dir", "tree/dir/file", "tree/soft", "tree/up"};
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
        assert_int_equal(owner_of(given[i]), 1235);
    assert_int_equal(owner_of("outside"), 0);
    assert_int_equal(owner_of("tree/root_s"), 0);
    assert_int_equal(owner_of("tree/hard"), 0);
    assert_int_equal(fs_give_tree(root, "tree/up", 1, 1), -ENOTDIR);
}

static void a_tree_that_is_too_deep_keeps_its_owner(void **state)
{
    char path[256] = "tree";
    if (geteuid() != 0)
        skip();
    assert_int_equal(mkdirat(root, path, 0700), 0);
    for (int i = 0; i < 40; i++) {
        (void)strncat(path, "/d", sizeof(path) - strlen(path) - 1);
        assert_int_equal(mkdirat(root, path, 0700), 0);
    }
    assert_int_equal(fs_give_tree(root, "tree", 1235, 1235), -ELOOP);
    assert_int_equal(owner_of("tree"), 0); /* the top goes last */
}

#define FACT(name) cmocka_unit_test_setup_teardown(name, make_root, drop_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_beneath_holds_with_openat2),
        cmocka_unit_test(open_beneath_holds_without_openat2),
        cmocka_unit_test(open_beneath_holds_where_openat2_is_forbidden),
        FACT(read_file_takes_exactly_what_fits),
        FACT(read_file_does_not_believe_the_size),
        FACT(read_file_refuses_what_is_no_file),
        FACT(write_all_waits_for_a_slow_reader),
        FACT(write_all_reports_failure),
        FACT(write_once_wants_a_file_that_is_there),
        FACT(read_small_strips_one_newline_and_never_cuts),
        FACT(mkdirs_makes_what_is_missing),
        FACT(mkdirs_refuses_what_is_no_directory),
        FACT(remove_takes_all_kinds_of_entries),
        FACT(remove_of_what_is_missing_is_success),
        FACT(remove_refuses_names_that_lead_elsewhere),
        FACT(remove_does_not_follow_links),
        FACT(remove_goes_deeper_than_any_path),
        FACT(remove_copes_with_taken_names),
        FACT(remove_opens_directories_their_owner_closed),
        FACT(remove_does_not_cross_mounts),
        FACT(remove_is_safe_while_links_are_swapped),
        FACT(copy_goes_from_offset_to_end),
        FACT(copy_works_across_kinds_of_files),
        FACT(sealed_memfd_cannot_be_changed),
        FACT(files_of_others_are_not_obeyed),
        FACT(a_tree_is_given_without_what_others_have_in_it),
        FACT(a_tree_that_is_too_deep_keeps_its_owner),
    };
    return cmocka_run_group_tests_name("fs", tests, NULL, NULL);
}
