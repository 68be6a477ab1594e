//! A route table that can be read back: axum's [`Router`] does not list its routes.
//!
//! The functions have the names of [`axum::routing`], so that a table reads as usual. The description of the API is
//! compared with what was registered here, so no route can be missing from it.

use std::convert::Infallible;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};

use crate::app::Shared;

/// A router, and the methods and paths that were registered in it.
pub(crate) struct Table {
    router: Router<Shared>,
    routes: Vec<(Method, &'static str)>,
}

/// The handlers of one path, by method.
pub(crate) struct Methods {
    handlers: MethodRouter<Shared, Infallible>,
    methods: Vec<Method>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), routes: Vec::new() }
    }

    /// Adds the handlers of a path.
    pub(crate) fn route(mut self, path: &'static str, handlers: Methods) -> Self {
        self.routes.extend(handlers.methods.into_iter().map(|method| (method, path)));
        Self { router: self.router.route(path, handlers.handlers), ..self }
    }

    /// Adds the routes of another table.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.routes.extend(other.routes);
        Self { router: self.router.merge(other.router), ..self }
    }

    /// The router, without the list.
    pub(crate) fn into_router(self) -> Router<Shared> {
        self.router
    }

    /// The registered methods and paths.
    pub(crate) fn routes(&self) -> &[(Method, &'static str)] {
        &self.routes
    }
}

impl Methods {
    fn on<H: Handler<T, Shared>, T: 'static>(mut self, method: Method, filter: MethodFilter, handler: H) -> Self {
        self.methods.push(method);
        Self { handlers: self.handlers.on(filter, handler), ..self }
    }

    /// Adds a handler for POST.
    pub(crate) fn post<H: Handler<T, Shared>, T: 'static>(self, handler: H) -> Self {
        self.on(Method::POST, MethodFilter::POST, handler)
    }

    /// Adds a handler for PUT.
    pub(crate) fn put<H: Handler<T, Shared>, T: 'static>(self, handler: H) -> Self {
        self.on(Method::PUT, MethodFilter::PUT, handler)
    }

    /// Adds a handler for DELETE.
    pub(crate) fn delete<H: Handler<T, Shared>, T: 'static>(self, handler: H) -> Self {
        self.on(Method::DELETE, MethodFilter::DELETE, handler)
    }
}

fn none() -> Methods {
    Methods { handlers: MethodRouter::new(), methods: Vec::new() }
}

/// A handler for GET and HEAD.
pub(crate) fn get<H: Handler<T, Shared>, T: 'static>(handler: H) -> Methods {
    none().on(Method::GET, MethodFilter::GET, handler)
}

/// A handler for POST.
pub(crate) fn post<H: Handler<T, Shared>, T: 'static>(handler: H) -> Methods {
    none().post(handler)
}

/// A handler for DELETE.
pub(crate) fn delete<H: Handler<T, Shared>, T: 'static>(handler: H) -> Methods {
    none().delete(handler)
}
