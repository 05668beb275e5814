/* SPDX-License-Identifier: Apache-2.0 */

/* Loads the filter that seccomp_gen made. The bytes are constant: the kernel copies, checks and
 * translates them, which is all a box pays for.
 *
 * No flags, deliberately. SPEC_ALLOW would switch off, on kernels before 5.16 or where the
 * operator chose spectre_v2_user=seccomp, the branch-predictor barriers between this process
 * and others; boxes are each other's strangers, so it stays as the operator has it (on newer
 * kernels the flag changes nothing). TSYNC is for processes with more threads than the one that
 * calls. */

#include "box/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_filter.h"

#define FILTER_COUNT (sizeof(seccomp_filter) / sizeof(seccomp_filter[0]))
_Static_assert(FILTER_COUNT <= BPF_MAXINSNS, "the kernel takes no longer filter");

int seccomp_load(void)
{
    /* Root may load a filter without it, and would then gain rights by exec of a set-uid file.
     */
    if (prctl(PR_GET_NO_NEW_PRIVS, 0L, 0L, 0L, 0L) != 1)
        return -EACCES;

    const struct sock_fprog program = {
        .len = FILTER_COUNT,
        .filter = (struct sock_filter *)seccomp_filter, /* the kernel only reads it */
    };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0UL, &program) < 0)
        return -errno;
    return 0;
}
