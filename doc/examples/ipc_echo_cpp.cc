// SPDX-License-Identifier: BSD-3-Clause
//
// ipc from C++17: the headers are C, and handles fit std::unique_ptr. Server and client are objects
// of one thread here; ipc_echo.c has them in two processes.
//
//     c++ -std=c++17 ipc_echo_cpp.cc $(pkg-config --cflags --libs crpc_ipc) -o ipc_echo_cpp
#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>

#include <crpc_clock.h>
#include <crpc_ipc.h>
#include <crpc_log.h>

using Server = std::unique_ptr<crpc_ipc_server, decltype(&crpc_ipc_server_free)>;
using Client = std::unique_ptr<crpc_ipc_client, decltype(&crpc_ipc_client_close)>;

static void
serve(crpc_ipc_server *server)
{
	std::array<crpc_req, 32> req;
	const uint64_t now = crpc_clock_ns();
	const uint16_t n = crpc_ipc_server_recv(server, now, req.data(), req.size());

	crpc_ipc_server_reap(server); // Admits new clients.
	for (uint16_t i = 0; i < n; i++)
		crpc_ipc_server_reply(server, now, req[i].token, req[i].data, req[i].len);
}

int
main()
{
	crpc_clock_init();
	const std::string name = "ipc_echo_cpp_" + std::to_string(getpid());
	crpc_ipc_server_conf server_conf{};
	server_conf.name = name.c_str();
	const Server server{crpc_ipc_server_create(&server_conf), crpc_ipc_server_free};
	crpc_ipc_client_conf client_conf{};
	client_conf.name = name.c_str();
	const Client client{
		server ? crpc_ipc_client_connect(&client_conf) : nullptr, crpc_ipc_client_close};
	if (!client) {
		std::cerr << crpc_log_last() << '\n';
		return 1;
	}
	const std::string_view text = "hello from C++";
	if (crpc_ipc_client_call(
		    client.get(), crpc_clock_ns(), text.data(), text.size(), text.size(), 42) != 0)
		return 1;
	crpc_done done{};
	while (crpc_ipc_client_poll(client.get(), crpc_clock_ns(), &done, 1) == 0)
		serve(server.get());
	const std::string_view reply{static_cast<const char *>(done.data), done.len};
	std::cout << "cookie " << done.cookie << ": " << reply << '\n';
	return done.status != 0 || reply != text;
}
