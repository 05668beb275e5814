/* SPDX-License-Identifier: Apache-2.0 */

/* See program.h. */

#include "seccomp/program.h"

#include <errno.h>
#include <linux/sched.h>
#include <sys/mman.h>

int program_filter_no_exec(scmp_filter_ctx filter)
{
    const int calls[] = {SCMP_SYS(mprotect), SCMP_SYS(mmap)};
    int r = 0;
    for (int i = 0; r == 0 && i < 2; i++)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, calls[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}

int program_filter_threads(scmp_filter_ctx filter)
{
    int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
        SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    return r < 0 ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

int program_filter_load(const int *calls, size_t count, program_filter_rules *rules)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!filter)
        return -ENOMEM;
    int r = rules(filter);
    for (size_t i = 0; r == 0 && i < count; i++) {
        if (calls[i] >= 0)
            r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
    }
    if (r == 0)
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (r == 0)
        r = seccomp_load(filter);
    seccomp_release(filter);
    return r;
}
