/* SPDX-License-Identifier: Apache-2.0 */

/* See canary.h. A set is a file, a directory, TCP listeners on both loopback addresses, a
 * listener on an abstract socket, a System V segment and a POSIX shared memory object.
 * Everything that can hold the token does. The names and numbers that a probe gets never
 * contain it. */

#include "attack/canary.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PORT_TRIES = 20 }; /* for a port that is free on both addresses */

int canary_home_make(struct canary_home *home, struct err *err)
{
    *home = (struct canary_home){0};
    (void)snprintf(
        home->dir, sizeof(home->dir), "/var/tmp/hermes-selftest-%d-XXXXXX", getpid());
    id_make("canary_", home->token);
    if (!mkdtemp(home->dir)) {
        home->dir[0] = '\0';
        return err_set(err, ERR_INTERNAL, errno, "cannot make a directory in /var/tmp: %s",
            strerror(errno));
    }
    (void)chmod(home->dir, 0755);
    return 0;
}

void canary_home_remove(struct canary_home *home)
{
    if (home->dir[0])
        (void)fs_remove_tree(AT_FDCWD, home->dir);
    home->dir[0] = '\0';
}

static int write_secret(const char *path, const char *token, mode_t mode)
{
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 || fchmod(fd, mode) < 0)
        return -errno;
    return fs_write_all(fd, token, strlen(token));
}

static int plant_files(struct canary *c)
{
    char id[ID_MAX];
    char inner[sizeof(c->dir) + 8];
    id_make("", id);
    (void)snprintf(c->dir, sizeof(c->dir), "%s/d-%s", c->home->dir, id);
    (void)snprintf(c->file, sizeof(c->file), "%s/f-%s", c->home->dir, id);
    (void)snprintf(inner, sizeof(inner), "%s/secret", c->dir);
    int r = write_secret(c->file, c->home->token, 0644);
    if (r < 0)
        return r;
    if (mkdir(c->dir, 0755) < 0 || chmod(c->dir, 0777) < 0)
        return -errno;
    if ((r = write_secret(inner, c->home->token, 0600)) < 0)
        return r;
    return stat(c->dir, &c->dir_stat) < 0 || stat(c->file, &c->file_stat) < 0 ? -errno : 0;
}

static int listen_on(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, address, size) < 0 || listen(fd, 16) < 0) {
        int error = errno;
        (void)close(fd);
        return -error;
    }
    return fd;
}

/* Listens on the same port of both addresses. A host without IPv6 has only one. */
static int plant_tcp(struct canary *c)
{
    int r = -EADDRINUSE;
    for (int i = 0; i < PORT_TRIES && r == -EADDRINUSE; i++) {
        struct sockaddr_in v4 = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        socklen_t size = sizeof(v4);
        close_fd(&c->tcp_fd[0]);
        if ((r = listen_on((const struct sockaddr *)&v4, size)) < 0)
            return r;
        c->tcp_fd[0] = r;
        if (getsockname(c->tcp_fd[0], (struct sockaddr *)&v4, &size) < 0)
            return -errno;
        c->port = ntohs(v4.sin_port);
        v6.sin6_port = v4.sin_port;
        r = listen_on((const struct sockaddr *)&v6, sizeof(v6));
    }
    c->tcp_fd[1] = r;
    return r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL || r >= 0 ? 0 : r;
}

static int plant_unix(struct canary *c)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    id_make("abstract-", c->abstract);
    size_t len = strlen(c->abstract);
    memcpy(address.sun_path + 1, c->abstract, len);
    c->unix_fd = listen_on((const struct sockaddr *)&address,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len));
    return c->unix_fd < 0 ? c->unix_fd : 0;
}

static int plant_shm(struct canary *c)
{
    size_t size = strlen(c->home->token) + 1;
    do {
        id_random(&c->shm_key, sizeof(c->shm_key));
        c->shm_key &= 0x7fffffff;
        c->shm_id = shmget(c->shm_key, size, IPC_CREAT | IPC_EXCL | 0666);
    } while (c->shm_key == 0 || (c->shm_id < 0 && errno == EEXIST));
    void *at = c->shm_id < 0 ? (void *)-1 : shmat(c->shm_id, NULL, 0);
    if (at == (void *)-1)
        return -errno;
    memcpy(at, c->home->token, size);
    (void)shmdt(at);
    (void)snprintf(c->shm_name, sizeof(c->shm_name), "/hermes-canary-%d", c->shm_key);
    cleanup_close int fd = shm_open(c->shm_name, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (fd < 0) {
        c->shm_name[0] = '\0';
        return -errno;
    }
    return fchmod(fd, 0666) < 0 ? -errno : fs_write_all(fd, c->home->token, size);
}

int canary_plant(struct canary *c, const struct canary_home *home, struct err *err)
{
    *c = (struct canary){.home = home, .tcp_fd = {-1, -1}, .unix_fd = -1, .shm_id = -1};
    int r = plant_files(c);
    if (r == 0)
        r = plant_tcp(c);
    if (r == 0)
        r = plant_unix(c);
    if (r == 0)
        r = plant_shm(c);
    if (r == 0)
        return 0;
    canary_remove(c);
    return err_set(err, ERR_INTERNAL, -r, "cannot plant a canary: %s", strerror(-r));
}

void canary_env(const struct canary *c, struct strv *env)
{
    strv_add_owned(env, xasprintf("CANARY_FILE=%s", c->file));
    strv_add_owned(env, xasprintf("CANARY_DIR=%s", c->dir));
    strv_add_owned(env, xasprintf("CANARY_PORT=%u", c->port));
    strv_add_owned(env, xasprintf("CANARY_ABSTRACT=%s", c->abstract));
    strv_add_owned(env, xasprintf("CANARY_SHM=%d", c->shm_key));
}

/* Compares everything but the access time. */
static bool same_stat(const struct stat *a, const char *path)
{
    struct stat b;
    return lstat(path, &b) == 0 && a->st_ino == b.st_ino && a->st_mode == b.st_mode &&
           a->st_uid == b.st_uid && a->st_gid == b.st_gid && a->st_size == b.st_size &&
           a->st_nlink == b.st_nlink &&
           memcmp(&a->st_mtim, &b.st_mtim, sizeof(b.st_mtim)) == 0 &&
           memcmp(&a->st_ctim, &b.st_ctim, sizeof(b.st_ctim)) == 0;
}

static bool same_bytes(const char *path, const char *token)
{
    char text[ID_MAX + 1];
    ssize_t n = fs_read_small(AT_FDCWD, path, text, sizeof(text));
    return n == (ssize_t)strlen(token) && memcmp(text, token, (size_t)n) == 0;
}

/* Whether no client has connected to the listener. */
static bool alone(int fd)
{
    cleanup_close int caller = fd < 0 ? -1 : accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    return caller < 0;
}

static bool same_shm(const struct canary *c)
{
    void *at = shmat(c->shm_id, NULL, SHM_RDONLY);
    if (at == (void *)-1)
        return false;
    bool same = strcmp(at, c->home->token) == 0;
    (void)shmdt(at);
    return same;
}

/* POSIX shared memory: the object still exists under its name, with its bytes and its mode. */
static bool same_shm_object(const struct canary *c)
{
    char text[ID_MAX + 1];
    struct stat st;
    size_t size = strlen(c->home->token) + 1;
    cleanup_close int fd = shm_open(c->shm_name, O_RDONLY, 0);
    return fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0666 &&
           st.st_size == (off_t)size && read(fd, text, sizeof(text)) == (ssize_t)size &&
           memcmp(text, c->home->token, size) == 0;
}

bool canary_check(struct canary *c, char *why, size_t why_size)
{
    const struct {
        bool fine;
        const char *text;
    } checks[] = {
        {same_stat(&c->file_stat, c->file) && same_bytes(c->file, c->home->token),
            "the canary file was changed"},
        {same_stat(&c->dir_stat, c->dir), "the canary directory was changed"},
        {alone(c->tcp_fd[0]), "a program connected to the canary on 127.0.0.1"},
        {alone(c->tcp_fd[1]), "a program connected to the canary on ::1"},
        {alone(c->unix_fd), "a program connected to the canary's abstract socket"},
        {same_shm(c), "the canary in System V shared memory was changed"},
        {same_shm_object(c), "the canary in POSIX shared memory was changed"},
    };
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (!checks[i].fine) {
            (void)snprintf(why, why_size, "%s", checks[i].text);
            return false;
        }
    }
    return true;
}

void canary_remove(struct canary *c)
{
    close_fd(&c->tcp_fd[0]);
    close_fd(&c->tcp_fd[1]);
    close_fd(&c->unix_fd);
    if (c->shm_id >= 0)
        (void)shmctl(c->shm_id, IPC_RMID, NULL);
    if (c->shm_name[0])
        (void)shm_unlink(c->shm_name);
    if (c->file[0])
        (void)unlink(c->file);
    if (c->dir[0])
        (void)fs_remove_tree(AT_FDCWD, c->dir);
    c->shm_id = -1;
    c->shm_name[0] = c->file[0] = c->dir[0] = '\0';
}
