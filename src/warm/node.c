/* SPDX-License-Identifier: Apache-2.0 */

/* libhermes-warm.so as a module of Node (runtimes/javascript/park.js). Node-API is plain C with
 * a stable ABI. The few functions that are needed are declared here, weak, because Python loads
 * the same library and does not have them. */

#include "warm/warm.h"

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
    } table[] = {{"park", park}, {"pipe", make_pipe}, {"exit", quick_exit}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        napi_value function;
        if (napi_create_function(env, table[i].name, strlen(table[i].name), table[i].function,
                NULL, &function) != 0 ||
            napi_set_named_property(env, exports, table[i].name, function) != 0)
            return NULL;
    }
    return exports;
}
