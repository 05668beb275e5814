/* SPDX-License-Identifier: Apache-2.0 */

/* Listening sockets. The monitor keeps them. So the server needs no right for ports below 1024,
 * and clients that connect while the server restarts wait instead of being refused. */

#include "prepare/prepare.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    SYSTEMD_FIRST_FD = 3,
    HELD_MS = 2000, /* see is_held() */
    HELD_NAP_US = 20000,
};

/* Calls fn for every "ADDR:PORT" of the settings. Stops when fn returns a negative value. */
static int each_address(const struct config *c, int (*fn)(void *, const char *), void *context)
{
    if (!c->listen[0]) {
        if (c->unix_path[0])
            return 0;
        cleanup_free char *one = xasprintf(strchr(c->host, ':') ? "[%s]:%llu" : "%s:%llu",
            c->host, (unsigned long long)c->port);
        return fn(context, one);
    }
    int r = 0;
    for (const char *p = c->listen; r >= 0 && *p;) {
        p += strspn(p, ", ");
        size_t len = strcspn(p, ", ");
        if (len) {
            cleanup_free char *one = xstrndup(p, len);
            r = fn(context, one);
        }
        p += len;
    }
    return r;
}

/* "[::1]:80", "127.0.0.1:80", ":80" */
static int resolve(const char *text, struct addrinfo **ret)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const char *colon = strrchr(text, ':');
    if (!colon)
        return EAI_NONAME;
    bool brackets = text[0] == '[' && colon > text && colon[-1] == ']';
    cleanup_free char *host = brackets ? xstrndup(text + 1, (size_t)(colon - text) - 2)
                                       : xstrndup(text, (size_t)(colon - text));
    return getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, ret);
}

#define NEEDS_KEY                                                                              \
    "is not loopback and there is no key: set API_TOKEN or keys_file, or "                     \
    "HERMES_ALLOW_UNAUTHENTICATED=1 to serve everybody"

/* An address that others can reach needs a key, unless the operator has set
 * allow_unauthenticated. */
static bool may_serve(const struct prepare *p, const struct sockaddr *addr)
{
    return p->keys.count || p->config.allow_unauthenticated || address_is_loopback(addr);
}

struct check {
    const struct prepare *prepare;
    struct strv *problems;
};

static int check_one(void *context, const char *text)
{
    struct check *check = context;
    struct addrinfo *found = NULL;
    int r = resolve(text, &found);
    if (r != 0) {
        strv_add_owned(check->problems,
            xasprintf("listen: %s: %s", text,
                strchr(text, ':') ? gai_strerror(r) : "write it as ADDR:PORT"));
        return 0;
    }
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        if (may_serve(check->prepare, a->ai_addr))
            continue;
        strv_add_owned(check->problems, xasprintf("listen: %s " NEEDS_KEY, text));
        break;
    }
    freeaddrinfo(found);
    return 0;
}

void listen_check(const struct prepare *p, struct strv *problems)
{
    struct check check = {.prepare = p, .problems = problems};
    (void)each_address(&p->config, check_one, &check);
}

static void tell_address(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    } addr = {0};
    socklen_t len = sizeof(addr);
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (getsockname(fd, &addr.any, &len) < 0)
        return;
    if (addr.any.sa_family == AF_UNIX)
        log_event(LOG_INFO, "listening", "address", addr.local.sun_path, (char *)NULL);
    else if (getnameinfo(&addr.any, len, host, sizeof(host), port, sizeof(port),
                 NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        log_event(LOG_INFO, "listening", "address", host, "port", port, (char *)NULL);
}

static int bind_tcp(const struct addrinfo *a)
{
    const int one = 1;
    cleanup_close int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    return take_fd(&fd);
}

/* A server whose monitor was killed holds its addresses until it has ended, too. On a busy
 * machine that is after the next start. Returns, after a nap, whether to try again. */
static bool is_held(int r, uint64_t began_ms)
{
    if (r != -EADDRINUSE || clock_ms() - began_ms >= HELD_MS)
        return false;
    (void)usleep(HELD_NAP_US);
    return true;
}

struct opening {
    struct prepare *prepare;
    struct err *err;
};

static int open_one(void *context, const char *text)
{
    struct opening *o = context;
    struct addrinfo *found = NULL;
    int r = resolve(text, &found) ? -EADDRNOTAVAIL : 0;
    uint64_t began_ms = clock_ms();
    for (const struct addrinfo *a = found; r >= 0 && a; a = a->ai_next) {
        if (o->prepare->listen_count == HANDOVER_MAX_LISTEN)
            break;
        do
            r = bind_tcp(a);
        while (is_held(r, began_ms));
        if (r >= 0) {
            o->prepare->listen_fds[o->prepare->listen_count++] = r;
            tell_address(r);
        }
    }
    if (found)
        freeaddrinfo(found);
    return r < 0
               ? err_set(o->err, ERR_UNAVAILABLE, -r, "cannot serve %s: %s", text, strerror(-r))
               : 0;
}

/* Removes the socket file of a monitor that was killed. A socket that accepts connections
 * stays. */
static int clear_path(const struct sockaddr_un *addr)
{
    struct stat st;
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (lstat(addr->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode) || fd < 0)
        return -EEXIST;
    if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0)
        return -EADDRINUSE;
    return unlink(addr->sun_path) < 0 ? -errno : 0;
}

static int open_unix(struct prepare *p, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *path = p->config.unix_path;
    if (strlen(path) >= sizeof(addr.sun_path))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "unix: the path has more than %zu bytes",
            sizeof(addr.sun_path) - 1);
    memcpy(addr.sun_path, path, strlen(path));
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    uint64_t began_ms = clock_ms();
    int r = fd < 0 ? -errno : 0;
    if (r == 0) {
        do
            r = clear_path(&addr);
        while (is_held(r, began_ms));
    }
    if (r == 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        r = -errno;
    if (r == 0) {
        p->made_unix = true;
        (void)chmod(path, 0660);
        if (geteuid() == 0 && lchown(path, 0, p->gid) < 0)
            r = -errno;
    }
    if (r == 0 && listen(fd, BACKLOG) < 0)
        r = -errno;
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r, "cannot serve %s: %s", path, strerror(-r));
    tell_address(fd);
    p->listen_fds[p->listen_count++] = take_fd(&fd);
    return 0;
}

/* Number of sockets that the service manager opened for this process, from descriptor 3 on.
 * LISTEN_PID names the process they are for; variables inherited from a parent are ignored. */
static uint32_t count_activated(void)
{
    const char *pid = getenv("LISTEN_PID");
    const char *count = getenv("LISTEN_FDS");
    uint32_t number = 0;
    uint32_t fds = 0;
    if (pid && count && str_parse_u32(pid, &number) == 0 && number == (uint32_t)getpid())
        (void)str_parse_u32(count, &fds);
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return fds;
}

static int check_activated(const struct prepare *p, int fd, struct err *err)
{
    struct sockaddr_storage addr = {0};
    socklen_t addr_len = sizeof(addr);
    int listens = 0;
    int type = 0;
    socklen_t len = sizeof(int);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) < 0 || !listens ||
        getsockname(fd, (struct sockaddr *)&addr, &addr_len) < 0)
        return err_set(err, ERR_INVALID, ENOTSOCK,
            "LISTEN_FDS: descriptor %d is not a listening stream socket; the .socket unit "
            "needs ListenStream= and Accept=no",
            fd);
    if (!may_serve(p, (struct sockaddr *)&addr))
        return err_set(
            err, ERR_INVALID, EPERM, "LISTEN_FDS: the address of descriptor %d " NEEDS_KEY, fd);
    return 0;
}

/* Takes the sockets of the service manager, all or none. */
static int take_activated(struct prepare *p, uint32_t count, struct err *err)
{
    if (count > HANDOVER_MAX_LISTEN)
        return err_set(err, ERR_INVALID, E2BIG, "LISTEN_FDS: at most %d sockets are served",
            HANDOVER_MAX_LISTEN);
    for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + (int)count; fd++) {
        int r = check_activated(p, fd, err);
        if (r < 0)
            return r;
        /* Children use low descriptor numbers for other purposes. */
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, 64);
        if (moved < 0 || fcntl(moved, F_SETFL, fcntl(moved, F_GETFL) | O_NONBLOCK) < 0)
            return err_set(err, ERR_INTERNAL, errno, "LISTEN_FDS: %s", strerror(errno));
        (void)close(fd);
        p->listen_fds[p->listen_count++] = moved;
        tell_address(moved);
    }
    return 0;
}

int listen_open(struct prepare *p, struct err *err)
{
    struct opening opening = {.prepare = p, .err = err};
    uint32_t activated = count_activated();
    if (activated)
        return take_activated(p, activated, err);
    int r = each_address(&p->config, open_one, &opening);
    if (r >= 0 && p->config.unix_path[0])
        r = open_unix(p, err);
    return r < 0 ? r : 0;
}

void listen_close(struct prepare *p)
{
    for (unsigned i = 0; i < p->listen_count; i++)
        close_fd(&p->listen_fds[i]);
    p->listen_count = 0;
    if (p->made_unix)
        (void)unlink(p->config.unix_path);
    p->made_unix = false;
}
