// id: O-47
// name: Credentials snapshot
// group: kernel
// priority: 1
// expect: ok
// control: caps
// files: probe.h
#include "probe.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>

static void expect(const char *line, const char *key, unsigned long long wanted, int base)
{
    if (strncmp(line, key, strlen(key)) != 0)
        return;
    fputs(line, stdout);
    if (strtoull(line + strlen(key), NULL, base) != wanted)
        breach(key, "is something else");
}

/* Rootless, the kernel may forbid setgroups(2) for good: then old groups stay, and it is no fault
 * of the box. */
static int setgroups_denied(void)
{
    char text[16] = "";
    FILE *f = fopen("/proc/self/setgroups", "r");
    if (f && !fgets(text, sizeof text, f))
        *text = '\0';
    if (f)
        fclose(f);
    return strncmp(text, "deny", 4) == 0;
}

int main(void)
{
    char line[512];
    FILE *f = fopen("/proc/self/status", "r");
    if (!f)
        return 1;
    while (fgets(line, sizeof line, f)) {
        expect(line, "CapInh:", 0, 16);
        expect(line, "CapPrm:", 0, 16);
        expect(line, "CapEff:", 0, 16);
        expect(line, "CapBnd:", 0, 16);
        expect(line, "CapAmb:", 0, 16);
        expect(line, "NoNewPrivs:", 1, 10);
        expect(line, "Seccomp:", 2, 10);
    }
    fclose(f);

    gid_t groups[64];
    int count = getgroups(64, groups);
    printf("uid %d gid %d groups %d\n", (int)getuid(), (int)getgid(), count);
    if (getuid() == 0 || getgid() == 0 || geteuid() != getuid())
        breach("uid or gid", "of root");
    if (count > 0 && !setgroups_denied())
        breach("groups", "kept");

    for (int cap = 0; cap <= 40; cap++)
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) == 0)
            breach("ambient capability", "raised");
    REFUSED("setuid(0)", setuid(0), EPERM, EINVAL, ENOSYS);
    REFUSED("setgid(0)", setgid(0), EPERM, EINVAL, ENOSYS);
    REFUSED("setresuid", setresuid(0, 0, 0), EPERM, EINVAL, ENOSYS);
    gid_t zero = 0;
    REFUSED("setgroups", setgroups(1, &zero), EPERM, EINVAL, ENOSYS);

    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    FILTERED("capset", syscall(SYS_capset, &header, all));
    FILTERED("securebits", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
    REFUSED("undo no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EPERM, EINVAL);
    return done();
}
