/* SPDX-License-Identifier: Apache-2.0 */

/* Which sockets a confined hermes-egress can open. Each probe has its control: the same call in
 * a process that is not confined. */

#include "egress/egress.h"
#include "test.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The error of socket() in a child; 0: it opens one. */
static int error_of(int family, int type, int protocol, bool is_confined)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || (is_confined && confine_rest() < 0))
            _exit(255);
        /* Not _exit(): the address sanitizer makes calls before it that the filter refuses. */
        (void)syscall(SYS_exit_group, socket(family, type, protocol) < 0 ? errno : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void tcp_and_udp_can_be_opened(void **state)
{
    (void)state;
    static const int families[] = {AF_INET, AF_INET6};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(error_of(families[i], SOCK_STREAM | SOCK_NONBLOCK, 0, true), 0);
        assert_int_equal(error_of(families[i], SOCK_DGRAM | SOCK_CLOEXEC, 0, true), 0);
    }
}

static void nothing_else_can_be_opened(void **state)
{
    (void)state;
    static const struct {
        int family, type, protocol;
    } others[] = {{AF_UNIX, SOCK_STREAM, 0}, {AF_NETLINK, SOCK_RAW, 0},
        {AF_INET, SOCK_STREAM, IPPROTO_TCP}, {AF_INET, SOCK_DGRAM, IPPROTO_UDP}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        int family = others[i].family;
        int type = others[i].type;
        assert_int_equal(error_of(family, type, others[i].protocol, false), 0);
        assert_int_equal(error_of(family, type, others[i].protocol, true), EPERM);
    }
    /* Not every host has these, so they have no control of their own. */
    assert_int_equal(error_of(AF_INET, SOCK_STREAM, IPPROTO_SCTP, true), EPERM);
    assert_int_equal(error_of(AF_INET, SOCK_STREAM, 262 /* MPTCP */, true), EPERM);
    assert_int_equal(error_of(AF_INET, SOCK_DGRAM, IPPROTO_ICMP, true), EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_and_udp_can_be_opened),
        cmocka_unit_test(nothing_else_can_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
