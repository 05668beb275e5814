/* SPDX-License-Identifier: Apache-2.0 */

/* See egress.h. */

#include "network/egress.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/process.h"
#include "base/os/sys.h"
#include "base/os/user.h"
#include "proto/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOT_EXECUTED = 127 };

struct identity {
    uid_t uid;
    gid_t gid;
};

/* If root: chooses a user that no box and no server of this host has. */
static int choose_identity(struct identity *ret, struct err *err)
{
    static const uid_t nobody[] = {0};
    struct identity server;
    *ret = (struct identity){geteuid(), getegid()};
    if (ret->uid != 0)
        return 0;
    if (user_choose("", "hermes", nobody, &server.uid, &server.gid) < 0 ||
        user_choose("", "hermes-egress", (const uid_t[]){server.uid, 0}, &ret->uid, &ret->gid) <
            0)
        return err_set(err, ERR_UNAVAILABLE, ENOENT,
            "there is no user for hermes-egress; run: useradd --system --no-create-home "
            "hermes-egress");
    return 0;
}

/* Runs in the child. It gives up stdin, stdout and stderr: they may be pipes, and a reader
 * would wait for the end of hermes-egress, too. */
static int leave_parent(const void *context)
{
    const struct identity *identity = context;
    cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)setsid();
    for (int fd = 0; fd < 3; fd++) {
        if (null < 0 || dup2(null, fd) < 0)
            return -errno;
    }
    return process_drop(identity->uid, identity->gid);
}

static pid_t start(const struct identity *identity, int socket)
{
    char *argv[] = {(char *)"hermes-egress", NULL};
    char *env[] = {NULL};
    const struct process_image image = {.program = argv[0],
        .argv = argv,
        .env = env,
        .socket = socket,
        .at = EGRESS_FD,
        .before = leave_parent,
        .context = identity};
    pid_t pid = fork();
    if (pid == 0) {
        (void)process_become(&image);
        _exit(NOT_EXECUTED);
    }
    return pid < 0 ? -errno : pid;
}

/* Puts the ceiling into the socket of egress, and that socket into the link. */
static int fill(int link, int socket, const struct network_ceiling *ceiling)
{
    const struct egress_message message = {.kind = EGRESS_CEILING};
    const char mark = EGRESS_SOCKET_MARK;
    cleanup_close int fd = fs_memfd_sealed("ceiling", ceiling, sizeof(*ceiling));
    int r = fd < 0 ? fd : fdpass_send(socket, &message, sizeof(message), &fd, 1);
    return r < 0 ? r : fdpass_send(link, &mark, sizeof(mark), &socket, 1);
}

int egress_start(const struct network_ceiling *ceiling, pid_t *ret_pid, struct err *err)
{
    struct identity identity;
    int pairs[2][2] = {{-1, -1}, {-1, -1}};
    int r = choose_identity(&identity, err);
    if (r < 0)
        return r;
    for (int i = 0; i < 2; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pairs[i]) < 0)
            r = -errno;
    }
    cleanup_close int ours = pairs[0][0];
    cleanup_close int theirs = pairs[0][1];
    cleanup_close int link = pairs[1][0];
    cleanup_close int spawners = pairs[1][1];
    if (r == 0 && (r = fill(link, ours, ceiling)) == 0)
        r = *ret_pid = start(&identity, theirs);
    return r < 0
               ? err_set(err, ERR_INTERNAL, -r, "cannot start hermes-egress: %s", strerror(-r))
               : take_fd(&spawners);
}
