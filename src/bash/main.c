/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-shell: the interpreter of bash sessions. In a box it is the kernel, with its channel
 * on descriptor 3. In other places it is the far shell, at the end of a byte stream. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "bash/far.h"
#include "bash/kernel.h"
#include "version.h"

enum { GRACE_MAX_S = 86400, EXIT_USAGE = 64 };

static const char USAGE[] =
    "usage: hermes-shell [BASH]                        interpreter, channel on descriptor 3\n"
    "       hermes-shell --stdio NONCE [BASH]          far shell on stdin and stdout\n"
    "       hermes-shell --stay SOCKET GRACE_S NONCE [BASH]\n"
    "                                                  far shell that survives a cut, joined\n"
    "       hermes-shell --attach SOCKET NONCE         joins it again\n"
    "       hermes-shell --version\n";

static const char *find_bash(const char *given)
{
    static const char *const usual[] = {"/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash"};
    for (size_t i = 0; !given && i < sizeof(usual) / sizeof(usual[0]); i++)
        if (access(usual[i], X_OK) == 0)
            return usual[i];
    return given ? given : usual[0];
}

static _Noreturn void run_stdio(const char *nonce, const char *bash)
{
    static struct far far;
    (void)dprintf(1, "\001%s\002", nonce);
    link_init(&far.link);
    far.bash = bash;
    int in_fd = fcntl(0, F_DUPFD_CLOEXEC, 10);
    int out_fd = fcntl(1, F_DUPFD_CLOEXEC, 10);
    /* Nothing that runs below may hold the stream. */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)dup2(null, 0);
    (void)dup2(null, 1);
    (void)fcntl(in_fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(out_fd, F_SETFL, O_NONBLOCK);
    link_connect(&far.link, in_fd, out_fd);
    far_run(&far);
}

static int run_stay(int argc, char **argv)
{
    uint32_t grace_s;
    if (argc < 5 || str_parse_u32(argv[3], &grace_s) < 0 || grace_s > GRACE_MAX_S)
        return -1;
    const char *bash = find_bash(argc > 5 ? argv[5] : NULL);
    int r = stay_start(argv[2], (uint64_t)grace_s * 1000, bash);
    if (r < 0) {
        (void)dprintf(2, "hermes-shell: cannot wait at %s: %s\n", argv[2], strerror(-r));
        return EXIT_USAGE;
    }
    return stay_attach(argv[2], argv[4]);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int r = -1;
    if (mode[0] != '-')
        kernel_run(argc > 1 ? mode : "/usr/bin/bash", false);
    if (str_eq(mode, "--stdio") && argc > 2)
        run_stdio(argv[2], find_bash(argc > 3 ? argv[3] : NULL));
    if (str_eq(mode, "--stay"))
        r = run_stay(argc, argv);
    if (str_eq(mode, "--attach") && argc > 3)
        r = stay_attach(argv[2], argv[3]);
    if (str_eq(mode, "--version"))
        r = printf("hermes-shell %s\n", HERMES_VERSION) < 0;
    if (r < 0)
        (void)fputs(USAGE, stderr);
    return r < 0 ? EXIT_USAGE : r;
}
