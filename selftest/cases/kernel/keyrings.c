// id: O-43
// name: Keyrings
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// runs: 2
// files: probe.h
#include "probe.h"
#include <linux/keyctl.h>

int main(void)
{
    /* In the control the key dies with the process. */
    long ring = control() ? KEY_SPEC_PROCESS_KEYRING : KEY_SPEC_USER_KEYRING;
    FILTERED("search", syscall(SYS_keyctl, KEYCTL_SEARCH, ring, "user", "hermes-probe", 0));
    FILTERED("add_key", syscall(SYS_add_key, "user", "hermes-probe", "x", 1, ring));
    FILTERED("request_key", syscall(SYS_request_key, "user", "hermes-probe", NULL, 0));
    FILTERED("session", syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL));
    FILTERED("describe", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
    FILTERED("persistent", syscall(SYS_keyctl, KEYCTL_GET_PERSISTENT, -1, ring));
    return done();
}
