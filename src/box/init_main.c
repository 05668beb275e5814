/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-init: pid 1 of a warm run, from the moment its program's process exists (init.h). A
 * separate static program, so that box init does not keep the zygote's memory. It is useless to
 * any other caller. */

#include "box/init.h"

#include "base/os/fs.h"
#include "base/str.h"

#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Repeats what take_identity() set. Exec has kept the request to die with the spawner. It is
 * only checked: asking again could come too late. */
static bool protect(void)
{
    int signal = 0;
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 &&
           prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) == 0 && signal == SIGKILL;
}

int main(int argc, char **argv)
{
    const struct spawn_box box = {.flags = BOX_WARM};
    int64_t values[INIT_ARGC];
    if (argc != INIT_ARGC || getpid() != 1)
        return 2;
    for (int i = 1; i < INIT_ARGC; i++) {
        if (str_parse_i64(argv[i], &values[i]) < 0 || values[i] < -1 || values[i] > INT_MAX)
            return 2;
    }
    struct inside in = {.box = &box,
        .unique_ids = true,
        .is_warm = true,
        .landlock_abi = (int)values[INIT_LANDLOCK],
        .link_fd = (int)values[INIT_LINK],
        .package_fd = (int)values[INIT_JOB],
        .stdin_fd = -1,
        .stdout_fd = -1,
        .stderr_fd = -1,
        .collect_fd = (int)values[INIT_COLLECT],
        .channel_fd = -1,
        .hand_fd = -1};
    uint64_t cpu_ns = inside_cpu_ns();
    if (!protect() || inside_wait_go(&in) < 0 ||
        fs_write_all((int)values[INIT_GATE], &cpu_ns, sizeof(cpu_ns)) < 0)
        return 1;
    (void)close((int)values[INIT_GATE]);
    init_watch(&in, (int)values[INIT_PAYLOAD], values[INIT_PARKED] > 0);
    return 0;
}
