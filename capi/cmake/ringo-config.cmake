# find_package(ringo) makes the targets ringo::ringo, which is libringo.so, and ringo::static, which is libringo.a.
get_filename_component(_ringo_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_package(Threads REQUIRED)

if(NOT TARGET ringo::ringo)
  add_library(ringo::ringo SHARED IMPORTED)
  set_target_properties(ringo::ringo PROPERTIES
    IMPORTED_LOCATION "${_ringo_prefix}/lib/libringo.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_ringo_prefix}/include")
endif()

if(NOT TARGET ringo::static AND EXISTS "${_ringo_prefix}/lib/libringo.a")
  add_library(ringo::static STATIC IMPORTED)
  set_target_properties(ringo::static PROPERTIES
    IMPORTED_LOCATION "${_ringo_prefix}/lib/libringo.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_ringo_prefix}/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
unset(_ringo_prefix)
