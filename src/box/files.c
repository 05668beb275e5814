/* SPDX-License-Identifier: Apache-2.0 */

/* See files.h. User code runs at the
 * same time, under the same id, and may swap, grow and remove any file. So paths are resolved
 * component by component from descriptors, never through a link; a file is checked before it is
 * read; every walk has bounds. Whatever goes wrong, this process can do no more than the code
 * that it serves. It does without openat2, which the system call filter refuses. */

#include "box/files.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "box/walk.h"
#include "proto/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum {
    DELETE_MS = 10000,      /* most time for one recursive delete */
    ROOM_RESERVE = 8 << 20, /* bytes of the box's memory that an upload must leave free */
};

/* One helper serves one socket, so all state is static. */
static struct {
    int fd;
    const char *root;
    uint64_t room_bytes;
    struct files_request request;
    char name[FILES_NAME_MAX + 1];
    char upload[64]; /* name of an upload on a file system without nameless files, or "" */
    size_t out_len;
    char out[sizeof(struct files_record) + FILES_NAME_MAX + FILES_PIECE_MAX];
} talk;

static int64_t time_ns(struct timespec ts)
{
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Sends the buffer. If the server has closed the socket, the helper is done. */
static void flush(void)
{
    for (size_t done = 0; done < talk.out_len;) {
        ssize_t n = send(talk.fd, talk.out + done, talk.out_len - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0);
        done += (size_t)n;
    }
    talk.out_len = 0;
}

static bool receive(void *to, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = recv(talk.fd, (char *)to + done, len - done, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* Makes room in the buffer for len bytes. */
static char *reserve(size_t len)
{
    if (talk.out_len + len > sizeof(talk.out))
        flush();
    return talk.out + talk.out_len;
}

static void add_record(struct files_record record, const char *name)
{
    record.name_len = (uint32_t)strlen(name);
    char *to = reserve(sizeof(record) + record.name_len);
    memcpy(to, &record, sizeof(record));
    memcpy(to + sizeof(record), name, record.name_len);
    talk.out_len += sizeof(record) + record.name_len;
}

static void add_entry(const struct stat *st, const char *name)
{
    add_record((struct files_record){.kind = FILES_ENTRY,
                   .mode = st->st_mode,
                   .size = (uint64_t)st->st_size,
                   .mtime_ns = time_ns(st->st_mtim)},
        name);
}

/* Sends at most `size` bytes of a file that may change meanwhile. -ENODATA when there are
 * fewer. */
static int add_content(int fd, uint64_t size)
{
    while (size > 0) {
        struct files_record record = {.kind = FILES_DATA};
        char *to = reserve(sizeof(record) + FILES_PIECE_MAX);
        size_t want = size < FILES_PIECE_MAX ? size : FILES_PIECE_MAX;
        ssize_t n = read(fd, to + sizeof(record), want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        record.size = (uint64_t)n;
        memcpy(to, &record, sizeof(record));
        talk.out_len += sizeof(record) + (size_t)n;
        size -= (uint64_t)n;
    }
    return 0;
}

/* Opens a directory in `at`. For a link the kernel says "not a directory"; this says -ELOOP. */
static int open_dir(int at, const char *name, int flags)
{
    struct stat st;
    int fd = openat(at, name, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    int r = -errno;
    return r == -ENOTDIR && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISLNK(st.st_mode)
               ? -ELOOP
               : r;
}

/* Opens the directory that holds what the request names; *ret_last is the name in it. With
 * `make` missing directories are made. */
static int open_parent(bool make, const char **ret_last)
{
    char part[NAME_MAX + 1];
    const char *at = talk.name;
    cleanup_close int fd = open(talk.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *slash;
    if (fd < 0)
        return -errno;
    while ((slash = strchr(at, '/'))) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - at), at);
        if (make && mkdirat(fd, part, 0755) < 0 && errno != EEXIST)
            return -errno;
        int next = open_dir(fd, part, O_PATH);
        if (next < 0)
            return next;
        close_fd(&fd);
        fd = next;
        at = slash + 1;
    }
    *ret_last = at;
    return take_fd(&fd);
}

/* Checks before opening, because opening a fifo wakes a process at its other end, and again
 * afterwards. */
static int open_regular(int dir_fd, const char *name, struct stat *ret)
{
    if (fstatat(dir_fd, name, ret, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(ret->st_mode))
        return -EISDIR;
    if (!S_ISREG(ret->st_mode))
        return S_ISLNK(ret->st_mode) ? -ELOOP : -EINVAL;
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, ret) < 0)
        return -errno;
    return S_ISREG(ret->st_mode) ? take_fd(&fd) : -EINVAL;
}

static int serve_get(void)
{
    const char *last;
    struct stat st;
    cleanup_close int dir_fd = open_parent(false, &last);
    if (dir_fd < 0)
        return dir_fd;
    cleanup_close int fd = open_regular(dir_fd, last, &st);
    if (fd < 0)
        return fd;
    add_entry(&st, "");
    flush();
    return add_content(fd, (uint64_t)st.st_size);
}

/* Whether the name can become a file: it is a regular file, or does not exist. */
static int check_target(void)
{
    const char *last;
    struct stat st;
    cleanup_close int dir_fd = open_parent(false, &last);
    if (dir_fd < 0)
        return dir_fd == -ENOENT ? 0 : dir_fd;
    if (fstatat(dir_fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    return S_ISREG(st.st_mode)   ? 0
           : S_ISDIR(st.st_mode) ? -EISDIR
           : S_ISLNK(st.st_mode) ? -ELOOP
                                 : -EINVAL;
}

/* How many bytes the box has room for; its file systems live in its memory. */
static uint64_t upload_limit(int fd)
{
    struct statfs fs;
    uint64_t taken = ROOM_RESERVE + talk.request.others;
    uint64_t limit = talk.room_bytes == UINT64_MAX ? UINT64_MAX
                     : talk.room_bytes > taken     ? talk.room_bytes - taken
                                                   : 0;
    if (fstatfs(fd, &fs) == 0 && (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < limit)
        limit = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    return limit;
}

static int take_pieces(int fd, uint64_t limit)
{
    static char piece[FILES_PIECE_MAX];
    uint64_t total = 0;
    for (;;) {
        uint32_t len;
        if (!receive(&len, sizeof(len)))
            return -EPIPE;
        if (len == 0)
            return 0;
        if (len > sizeof(piece))
            return -EBADMSG;
        if (!receive(piece, len))
            return -EPIPE;
        total += len;
        int r = total > limit ? -ENOSPC : fs_write_all(fd, piece, len);
        if (r < 0)
            return r;
    }
}

/* Opens a file for an upload. It has no name, so nothing is left when the helper ends. Some
 * network file systems have no such files: there it has a name in the root. */
static int open_upload(mode_t mode)
{
    int fd = open(talk.root, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    talk.upload[0] = '\0';
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd < 0 ? -errno : fd;
    cleanup_close int root = open(talk.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(talk.upload, sizeof(talk.upload), ".hermes-upload-%d-%llx", (int)getpid(),
        (unsigned long long)clock_ns());
    fd = openat(root, talk.upload, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode);
    return fd < 0 ? -errno : fd;
}

/* Removes the name of an upload that failed. */
static void drop_upload(void)
{
    cleanup_close int root =
        talk.upload[0] ? open(talk.root, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root >= 0)
        (void)unlinkat(root, talk.upload, 0);
    talk.upload[0] = '\0';
}

static int move_upload(int dir_fd, const char *last, bool *ret_is_new)
{
    cleanup_close int root = open(talk.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *ret_is_new = faccessat(dir_fd, last, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
    if (renameat(root, talk.upload, dir_fd, last) < 0)
        return -errno;
    talk.upload[0] = '\0';
    return 0;
}

/* Gives the nameless file its name. If a file has that name already, the new one first gets a
 * temporary name in the same directory and then replaces it. */
static int put_in_place(int fd, bool *ret_is_new)
{
    char own[48];
    char temporary[64];
    const char *last;
    cleanup_close int dir_fd = open_parent(true, &last);
    if (dir_fd < 0)
        return dir_fd;
    if (talk.upload[0])
        return move_upload(dir_fd, last, ret_is_new);
    (void)snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    *ret_is_new = linkat(AT_FDCWD, own, dir_fd, last, AT_SYMLINK_FOLLOW) == 0;
    if (*ret_is_new || errno != EEXIST)
        return *ret_is_new ? 0 : -errno;
    (void)snprintf(temporary, sizeof(temporary), ".hermes-upload-%d-%llx", (int)getpid(),
        (unsigned long long)clock_ns());
    if (linkat(AT_FDCWD, own, dir_fd, temporary, AT_SYMLINK_FOLLOW) < 0)
        return -errno;
    if (renameat(dir_fd, temporary, dir_fd, last) == 0)
        return 0;
    int r = -errno;
    (void)unlinkat(dir_fd, temporary, 0);
    return r;
}

static int serve_put(bool *ret_is_new, int64_t *ret_stamp_ns)
{
    const mode_t mode = talk.request.flags & FILES_EXECUTABLE ? 0755 : 0644;
    struct stat st;
    int r = check_target();
    if (r < 0)
        return r;
    cleanup_close int fd = open_upload(mode);
    if (fd < 0)
        return fd;
    uint64_t limit = upload_limit(fd);
    if (talk.request.size != UINT64_MAX && talk.request.size > limit)
        return -ENOSPC;
    add_record((struct files_record){.kind = FILES_ENTRY}, "");
    flush();
    if ((r = take_pieces(fd, limit)) < 0 || (r = put_in_place(fd, ret_is_new)) < 0)
        return r;
    if (fstat(fd, &st) == 0)
        *ret_stamp_ns = time_ns(st.st_ctim);
    return 0;
}

static int delete_entry(struct walk *walk, int dir_fd, const char *name, unsigned char type)
{
    if (type == DT_DIR || unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    return -errno;
}

static int delete_dir(struct walk *walk, int dir_fd, const char *name, unsigned char type)
{
    return unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

static int delete_below(int dir_fd, const char *name)
{
    static struct walk walk;
    int fd = open_dir(dir_fd, name, O_RDONLY);
    if (fd < 0)
        return fd;
    walk = (struct walk){.entry = delete_entry,
        .leave = delete_dir,
        .max_entries = UINT32_MAX,
        .until_ms = clock_ms() + DELETE_MS};
    int r = walk_tree(&walk, fd);
    return r == 0 && walk.cut ? -E2BIG : r;
}

static int serve_delete(void)
{
    const char *last;
    struct stat st;
    cleanup_close int dir_fd = open_parent(false, &last);
    if (dir_fd < 0)
        return dir_fd;
    if (fstatat(dir_fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(dir_fd, last, 0) < 0 ? -errno : 0;
    int r = talk.request.flags & FILES_RECURSIVE ? delete_below(dir_fd, last) : 0;
    return r < 0 ? r : unlinkat(dir_fd, last, AT_REMOVEDIR) < 0 ? -errno : 0;
}

struct listing {
    uint32_t left;
    int64_t newest_ns;
};

static int list_entry(struct walk *walk, int dir_fd, const char *name, unsigned char type)
{
    struct listing *listing = walk->context;
    uint32_t flags = talk.request.flags;
    struct stat st;
    if ((flags & FILES_CHANGED && type == DT_DIR) ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    int64_t changed_ns = time_ns(st.st_ctim);
    if (flags & FILES_CHANGED && (S_ISDIR(st.st_mode) || changed_ns < talk.request.since_ns))
        return 0;
    if (listing->left == 0)
        return -E2BIG;
    listing->left--;
    if (changed_ns > listing->newest_ns)
        listing->newest_ns = changed_ns;
    cleanup_close int fd = -1;
    if (flags & FILES_CONTENT && S_ISREG(st.st_mode) &&
        (fd = open_regular(dir_fd, name, &st)) < 0) {
        walk->cut = true; /* gone, or not readable */
        return 0;
    }
    add_entry(&st, walk->path);
    if (fd >= 0 && add_content(fd, (uint64_t)st.st_size) < 0)
        walk->cut = true;
    return 0;
}

static int serve_list(int64_t *ret_stamp_ns)
{
    static struct walk walk;
    const char *last = "";
    struct listing listing = {.left = talk.request.max_entries};
    cleanup_close int dir_fd = open_parent(false, &last);
    if (dir_fd < 0)
        return dir_fd;
    int fd = open_dir(dir_fd, *last ? last : ".", O_RDONLY);
    if (fd < 0)
        return fd;
    walk = (struct walk){.entry = list_entry,
        .context = &listing,
        .max_depth = talk.request.flags & FILES_RECURSIVE ? 0 : 1,
        .max_entries = FILES_ENTRIES_MAX,
        .until_ms = talk.request.max_ms ? clock_ms() + talk.request.max_ms : 0};
    int r = walk_tree(&walk, fd);
    *ret_stamp_ns = listing.newest_ns;
    return r < 0 ? r : walk.cut ? -E2BIG : 0;
}

/* Reads the name. The server has checked it; the helper checks it again. */
static bool take_name(void)
{
    uint32_t len = talk.request.name_len;
    if (len > FILES_NAME_MAX || !receive(talk.name, len))
        return false;
    talk.name[len] = '\0';
    return len ? !str_name_problem(talk.name, len) : talk.request.op == FILES_LIST;
}

static void serve(void)
{
    bool is_new = false;
    int64_t stamp_ns = 0;
    int r;
    switch (talk.request.op) {
    case FILES_GET:
        r = serve_get();
        break;
    case FILES_PUT:
        r = serve_put(&is_new, &stamp_ns);
        drop_upload();
        break;
    case FILES_DELETE:
        r = serve_delete();
        break;
    case FILES_LIST:
        r = serve_list(&stamp_ns);
        break;
    default:
        r = -EBADMSG;
    }
    add_record(
        (struct files_record){
            .kind = FILES_END, .error = r, .mode = is_new, .mtime_ns = stamp_ns},
        "");
    flush();
    /* The rest of a failed upload would be taken for a request. */
    if (r < 0 && talk.request.op == FILES_PUT)
        _exit(0);
}

void files_serve(int fd, const char *root, uint64_t room_bytes)
{
    (void)umask(0);
    talk.fd = fd;
    talk.root = root;
    talk.room_bytes = room_bytes;
    while (receive(&talk.request, sizeof(talk.request)) && take_name())
        serve();
    _exit(0);
}
