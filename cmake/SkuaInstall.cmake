# Install rules: skua::client with the libraries behind it (component `development`), the programs (`runtime`).
# What an outside project then does: find_package(skua), target_link_libraries(... skua::client).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Every header that client/client.h reaches. tests/package compiles against just these.
set(SKUA_PUBLIC_HEADERS
  client/client.h client/counters.h
  common/base/clock.h common/base/random.h common/base/status.h common/base/task.h)

# Libraries that may stand behind skua::client, and what an outside project finds them with.
set(SKUA_FIND_Threads::Threads "find_dependency(Threads)")
set(SKUA_FIND_tl::expected "find_dependency(tl-expected)")
set(SKUA_FIND_Boost::headers "find_dependency(Boost 1.81)")
set(SKUA_FIND_Boost::boost "find_dependency(Boost 1.81)")
set(SKUA_FIND_protobuf::libprotobuf "find_dependency(Protobuf)")
set(SKUA_FIND_fmt::fmt "find_dependency(fmt)")
set(SKUA_FIND_spdlog::spdlog "find_dependency(spdlog)")
set(SKUA_FIND_PkgConfig::XXHASH
  "find_dependency(PkgConfig)\npkg_check_modules(XXHASH REQUIRED QUIET IMPORTED_TARGET libxxhash)")
set(SKUA_FIND_PkgConfig::VERBS
  "find_dependency(PkgConfig)\npkg_check_modules(VERBS REQUIRED QUIET IMPORTED_TARGET libibverbs librdmacm)")

# Adds TARGET and what it links to the lists OWN (targets of this project) and OUTSIDE (the rest).
function(skua_link_closure target own outside)
  get_target_property(real ${target} ALIASED_TARGET)
  if(real)
    set(target ${real})
  endif()
  if(target IN_LIST ${own})
    return()
  endif()
  list(APPEND ${own} ${target})
  set(linked "")
  foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
    get_target_property(value ${target} ${property})
    if(value)
      list(APPEND linked ${value})
    endif()
  endforeach()
  foreach(item IN LISTS linked)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
    if(item MATCHES "^::@")
      continue()
    elseif(item MATCHES "^skua(::|_)")
      skua_link_closure(${item} ${own} ${outside})
    else()
      list(APPEND ${outside} ${item})
    endif()
  endforeach()
  set(${own} ${${own}} PARENT_SCOPE)
  set(${outside} ${${outside}} PARENT_SCOPE)
endfunction()

set(SKUA_EXPORTED "")
set(SKUA_OUTSIDE "")
skua_link_closure(skua::client SKUA_EXPORTED SKUA_OUTSIDE)
list(REMOVE_DUPLICATES SKUA_OUTSIDE)
list(SORT SKUA_OUTSIDE)
set(SKUA_FIND_DEPENDENCIES "")
foreach(library IN LISTS SKUA_OUTSIDE)
  if(NOT DEFINED SKUA_FIND_${library})
    message(FATAL_ERROR "skua::client links ${library}: say in cmake/SkuaInstall.cmake how users find it")
  endif()
  list(APPEND SKUA_FIND_DEPENDENCIES "${SKUA_FIND_${library}}")
endforeach()
list(REMOVE_DUPLICATES SKUA_FIND_DEPENDENCIES)
list(JOIN SKUA_FIND_DEPENDENCIES "\n" SKUA_FIND_DEPENDENCIES)

set(SKUA_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/skua)
install(TARGETS ${SKUA_EXPORTED} EXPORT skua
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT skua NAMESPACE skua:: FILE skua-targets.cmake
  DESTINATION ${SKUA_PACKAGE_DIR} COMPONENT development)
foreach(header IN LISTS SKUA_PUBLIC_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/skua/${folder} COMPONENT development)
endforeach()
configure_package_config_file(cmake/skua-config.cmake.in ${CMAKE_BINARY_DIR}/skua-config.cmake
  INSTALL_DESTINATION ${SKUA_PACKAGE_DIR})
# Before 1.0 a minor version may change what programs are compiled against.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/skua-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/skua-config.cmake ${CMAKE_BINARY_DIR}/skua-config-version.cmake
  DESTINATION ${SKUA_PACKAGE_DIR} COMPONENT development)

foreach(program skua skua-server skua-bench)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  endif()
endforeach()
