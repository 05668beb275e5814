/* SPDX-License-Identifier: Apache-2.0 */

/* Loads the filter that seccomp/gen.c made. The bytes are constant: a box pays only for the
 * kernel's copying, checking and translating them.
 *
 * No flags, deliberately. SPEC_ALLOW would switch off, on kernels before 5.16 or where the
 * operator chose spectre_v2_user=seccomp, the branch-predictor barriers between this process
 * and others. Boxes do not trust each other, so the barriers stay as the operator has them (on
 * newer kernels the flag changes nothing). TSYNC is for processes with several threads. */

#include "box/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_filter.h"

#define FILTER_COUNT(filter) (sizeof(filter) / sizeof((filter)[0]))
_Static_assert(FILTER_COUNT(seccomp_filter) <= BPF_MAXINSNS, "the kernel takes no longer one");
_Static_assert(FILTER_COUNT(seccomp_root_filter) <= BPF_MAXINSNS, "the same");

int seccomp_load(bool is_root)
{
    /* Root may load a filter without no_new_privs, and could then gain rights by executing a
     * set-uid file. */
    if (prctl(PR_GET_NO_NEW_PRIVS, 0L, 0L, 0L, 0L) != 1)
        return -EACCES;

    /* the kernel only reads them */
    const struct sock_fprog program =
        is_root ? (struct sock_fprog){FILTER_COUNT(seccomp_root_filter),
                      (struct sock_filter *)seccomp_root_filter}
                : (struct sock_fprog){
                      FILTER_COUNT(seccomp_filter), (struct sock_filter *)seccomp_filter};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0UL, &program) < 0)
        return -errno;
    return 0;
}
