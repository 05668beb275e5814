/* SPDX-License-Identifier: Apache-2.0 */

/* libhermes-warm.so as a module of Node (park.js and kernel.js in runtimes/javascript).
 * Node-API is plain C with a stable ABI. The few functions that are needed are declared here,
 * weak, because Python loads the same library and does not have them. */

#include "warm/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef struct napi_env_s *napi_env;
typedef struct napi_value_s *napi_value;
typedef struct napi_info_s *napi_info;
typedef napi_value napi_function(napi_env env, napi_info info);

#define NODE_API extern __attribute__((weak))
NODE_API int napi_create_function(napi_env env, const char *name, size_t len,
    napi_function *function, void *data, napi_value *ret);
NODE_API int napi_set_named_property(
    napi_env env, napi_value object, const char *name, napi_value value);
NODE_API int napi_create_array(napi_env env, napi_value *ret);
NODE_API int napi_set_element(napi_env env, napi_value array, uint32_t at, napi_value value);
NODE_API int napi_create_string_utf8(
    napi_env env, const char *text, size_t len, napi_value *ret);
NODE_API int napi_create_int32(napi_env env, int32_t number, napi_value *ret);
NODE_API int napi_get_cb_info(napi_env env, napi_info info, size_t *ret_n, napi_value *ret_args,
    napi_value *ret_this, void **ret_data);
NODE_API int napi_get_value_int32(napi_env env, napi_value value, int32_t *ret);

/* park(): waits for the package and returns its arguments; undefined when this is not a pool's
 * box. */
static napi_value park(napi_env env, napi_info info)
{
    napi_value list;
    napi_value word;
    const char *text;
    if (hermes_warm_park() < 0)
        return NULL;
    hermes_warm_begin();
    hermes_warm_take_env();
    if (napi_create_array(env, &list) != 0)
        _exit(1);
    for (uint32_t i = 0; (text = hermes_warm_arg(i)); i++) {
        if (napi_create_string_utf8(env, text, strlen(text), &word) != 0 ||
            napi_set_element(env, list, i, word) != 0)
            _exit(1);
    }
    return list;
}

/* pipe(): both ends of a pipe, to rehearse with. Node's own library cannot make one. */
static napi_value make_pipe(napi_env env, napi_info info)
{
    int fds[2];
    napi_value list;
    napi_value number;
    if (pipe2(fds, O_CLOEXEC) < 0 || napi_create_array(env, &list) != 0)
        return NULL;
    for (uint32_t i = 0; i < 2; i++) {
        if (napi_create_int32(env, fds[i], &number) != 0 ||
            napi_set_element(env, list, i, number) != 0)
            return NULL;
    }
    return list;
}

/* replace(old, new): `old` becomes a copy of `new` in one step, as no function of Node can do.
 * A close and an open would let another thread take the number in between. Returns an error
 * number, or 0. */
static napi_value replace(napi_env env, napi_info info)
{
    size_t n = 2;
    napi_value args[2];
    napi_value result;
    int32_t old;
    int32_t new;
    if (napi_get_cb_info(env, info, &n, args, NULL, NULL) != 0 ||
        napi_get_value_int32(env, args[0], &old) != 0 ||
        napi_get_value_int32(env, args[1], &new) != 0)
        return NULL;
    int status = dup3(new, old, O_CLOEXEC) < 0 ? errno : 0;
    return napi_create_int32(env, status, &result) == 0 ? result : NULL;
}

/* exit(): ends the process with status 0. Makes the streams blocking again, as Node does. */
static napi_value quick_exit(napi_env env, napi_info info)
{
    for (int fd = 0; fd < 3; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && flags & O_NONBLOCK)
            (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    hermes_warm_exit(0);
}

EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports);
EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports)
{
    static const struct {
        const char *name;
        napi_function *function;
    } table[] = {
        {"park", park}, {"pipe", make_pipe}, {"replace", replace}, {"exit", quick_exit}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        napi_value function;
        if (napi_create_function(env, table[i].name, strlen(table[i].name), table[i].function,
                NULL, &function) != 0 ||
            napi_set_named_property(env, exports, table[i].name, function) != 0)
            return NULL;
    }
    return exports;
}
